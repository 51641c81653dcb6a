"""Files outside of the container, when a job is resumed from an older state of itself."""

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.shim.jobs import numbers
from tests.integration.shim.killing import kill_when
from tests.integration.shim.kit import EngineSaidError, ShimNode
from tests.testbed import wait_until

pytestmark = pytest.mark.bed

LINES = 150
#: Writes the same lines into a file that stays open, one that is opened for each of them, one that
#: is mapped, and one of their own for every tenth; then ends.
WRITER = f"""
import mmap, os, time
os.makedirs("/data/results", exist_ok=True)
kept = open("/data/kept", "a")
with open("/data/mapped", "wb") as f: f.truncate(1 << 16)
with open("/data/mapped", "r+b") as f: mapped = mmap.mmap(f.fileno(), 0)
for n in range({LINES}):
    line = f"{{n}}\\n"
    kept.write(line); kept.flush()
    with open("/data/results/reopened", "a") as f: f.write(line)
    if n % 10 == 0:
        with open(f"/data/results/{{n}}", "x") as f: f.write(line)
    print(line, end="", flush=True)
    time.sleep(0.02)
"""
COMMAND = ["python3", "-c", WRITER]


@pytest.fixture
def data(one: ShimNode, job: int) -> Iterator[Path]:
    place = one.bed.data / str(job)
    place.mkdir()
    yield place
    shutil.rmtree(place)


def _segment(
    node: ShimNode, job: int, epoch: int, data: Path, *results: str, **more: object
) -> str:
    generation = 1 if epoch > 1 else None
    ticket = node.ticket(job, epoch, generation, results=results, **more)
    env = [f"STOPGAP_TICKET={ticket}"]
    return node.create(job, epoch, COMMAND, env=env, binds=[f"{data}:/data"])


def _crashed(node: ShimNode, job: int, data: Path, *results: str) -> None:
    """Let a job be saved in the middle, go on for a while, and die with everything of it."""
    container = _segment(node, job, 1, data, *results)
    node.start(container)
    kept = data / "kept"
    wait_until(lambda: kept.exists() and len(numbers(kept.read_bytes())) > 25, 20, "some lines")
    node.keep(job, 1)
    node.checkpoint(container)
    saved = len(numbers(kept.read_bytes()))
    wait_until(lambda: len(numbers(kept.read_bytes())) > saved + 25, 20, "more lines")
    node.verb("reap", job, 1)
    node.remove(container)


def test_the_output_is_that_of_an_uninterrupted_run(
    one: ShimNode, other: ShimNode, job: int, data: Path
) -> None:
    """
    Whether a file was open, was opened for each line, or came after the checkpoint.
    """
    _crashed(one, job, data, "/data/results")
    container = _segment(other, job, 2, data, "/data/results", after_crash="hold")
    other.start(container)

    assert 0 == other.wait(container), other.logs(container, "stderr")
    assert [] == other.receipt(job, 2, "resume")["changed"]
    whole = b"".join(b"%d\n" % n for n in range(LINES))
    assert whole == (data / "kept").read_bytes()
    assert whole == (data / "results/reopened").read_bytes()
    wanted = {str(n) for n in range(0, LINES, 10)} | {"reopened"}
    assert wanted == {path.name for path in (data / "results").iterdir()}
    tails = list((one.checkpoints / str(job) / "tails/1").iterdir())
    assert len(tails) > 3


def test_killed_in_the_midst_it_is_put_back_by_the_next(
    one: ShimNode, other: ShimNode, job: int, data: Path
) -> None:
    """
    What the first shim has cut is found to be right, the rest is cut then; nothing is held.
    """
    _crashed(one, job, data, "/data/results")
    container = _segment(other, job, 2, data, "/data/results", after_crash="hold")
    tails = one.checkpoints / str(job) / "tails/1"
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(other.start, container)
        kill_when(other, "create", container, lambda: tails.exists() and list(tails.iterdir()))
        with suppress(EngineSaidError):
            starting.result()
    other.remove(container)
    assert {"processes": 0} == other.verb("reap", job, 2)

    container = _segment(other, job, 3, data, "/data/results", after_crash="hold")
    other.start(container)

    assert 0 == other.wait(container), other.logs(container, "stderr")
    whole = b"".join(b"%d\n" % n for n in range(LINES))
    assert whole == (data / "kept").read_bytes() == (data / "results/reopened").read_bytes()


def test_what_changed_in_another_way_is_named(
    one: ShimNode, other: ShimNode, job: int, data: Path
) -> None:
    """
    Nothing is touched, nothing runs; with ``resume`` the job goes on all the same.
    """
    _crashed(one, job, data)
    (data / "other").write_text("not ours")
    os.chown(data / "other", 4321, 4321)
    (data / "mapped").write_bytes(b"x" * (1 << 16))
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    held = _segment(other, job, 2, data, after_crash="hold")

    with pytest.raises(EngineSaidError, match="files of the job have changed"):
        other.start(held)

    changed = other.receipt(job, 2, "resume")["changed"]
    assert "/data/mapped was overwritten" == changed[0]
    assert {line.split(" ", 1)[1] for line in changed[1:]} == {"has changed and was not recorded"}
    assert "/data/results/reopened" in {line.split(" ", 1)[0] for line in changed}
    assert "/data/other" not in {line.split(" ", 1)[0] for line in changed}
    assert before == {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    assert [] == other.processes(job, 2)
    other.remove(held)
    container = _segment(other, job, 3, data, after_crash="resume")
    other.start(container)
    assert changed == other.receipt(job, 3, "resume")["changed"]
    wait_until(lambda: other.logs(container) or other.logs(container, "stderr"), 20, "it")
    other.remove(container)


def test_a_deleted_and_a_replaced_file_hold_the_job(
    one: ShimNode, other: ShimNode, job: int, data: Path
) -> None:
    """
    Also when the one that took its place holds the same.
    """
    _crashed(one, job, data, "/data/kept", "/data/mapped")
    (data / "kept").unlink()
    shutil.copy(data / "mapped", data / "copy")
    (data / "copy").rename(data / "mapped")
    held = _segment(other, job, 2, data, after_crash="hold")

    with pytest.raises(EngineSaidError, match="files of the job have changed"):
        other.start(held)

    wanted = ["/data/kept was deleted", "/data/mapped was replaced by another file"]
    assert wanted == other.receipt(job, 2, "resume")["changed"]
