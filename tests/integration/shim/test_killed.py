"""SIGKILL to the shim, to runc and to CRIU at every moment."""

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.shim.jobs import COUNT, LARGE, assert_gap_free, saved, wait_progress
from tests.integration.shim.killing import after, kill_when, shims
from tests.integration.shim.kit import EngineSaidError, ShimNode
from tests.testbed import wait_until

pytestmark = pytest.mark.bed


SAVING: dict[str, Callable[[Path], Callable[[], object]]] = {
    "at-once": after(0),
    "dumping": lambda f: (f / "1/images/pages-1.img").exists,
    "after-0.1s": after(0.1),
    "after-0.3s": after(0.3),
    "dumped": lambda f: (f / "1/images/descriptors.json").exists,
    "signing": lambda f: lambda: list(f.glob("1/manifest.json*")),
    "committed": lambda f: (f / "1/manifest.json").exists,
}


@pytest.mark.parametrize("moment", SAVING)
def test_killed_checkpoint_loses_nothing(
    one: ShimNode, other: ShimNode, job: int, moment: str
) -> None:
    """
    Whenever the shim is killed, the job goes on, or is saved and gone: never both or neither.
    """
    container = one.run(job, 1, LARGE)
    wait_progress(one, container)
    folder = one.checkpoints / str(job)
    with ThreadPoolExecutor(1) as pool:
        saving = pool.submit(one.checkpoint, container)
        kill_when(one, "checkpoint", container, SAVING[moment](folder))
        with suppress(EngineSaidError):
            saving.result()

    one.verb("thaw", job, 1)
    if not (folder / "1" / "manifest.json").exists():
        wait_progress(one, container)
        one.checkpoint(container)
    assert 137 == one.wait(container)
    assert [] == one.processes(job, 1)
    (generation,) = one.generations(job)
    resumed = other.run(job, 2, LARGE, generation=int(generation))
    wait_progress(other, resumed)
    assert_gap_free(one.logs(container) + other.logs(resumed))


RESUMING: dict[str, Callable[[ShimNode, int], Callable[[], object]]] = {
    "at-once": lambda _n, _j: lambda: True,
    "restoring": lambda n, j: lambda: n.processes(j, 2),
    "after-0.1s": lambda _n, _j: after(0.1)(Path()),
    "after-0.3s": lambda _n, _j: after(0.3)(Path()),
    "restored": lambda n, j: (n.checkpoints / str(j) / "receipts/2.resume.json").exists,
}


@pytest.mark.parametrize("moment", RESUMING)
def test_killed_resume_starts_nothing(
    one: ShimNode, other: ShimNode, job: int, moment: str
) -> None:
    """
    What a killed resume leaves behind never runs, is seen by a census and ended by a reap.
    """
    keep: list[bytes] = []
    saved(one, job, LARGE, keep)
    container = other.create(job, 2, LARGE, generation=1)
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(other.start, container)
        kill_when(other, "create", container, RESUMING[moment](other, job))
        with suppress(EngineSaidError):
            starting.result()
    running = other.state(container)["Running"]
    assert running or b"" == other.logs(container)
    other.remove(container)
    assert {"processes": 0} == other.verb("reap", job, 2)

    if not running:
        resumed = one.run(job, 3, LARGE, generation=1)
        wait_progress(one, resumed)
        assert [] == other.processes(job, 2)
        assert_gap_free(keep[0] + one.logs(resumed))


def test_killed_start_leaves_it_stopped_or_running(
    one: ShimNode, other: ShimNode, job: int
) -> None:
    """
    A start that is killed has begun or not; a reap ends it either way.
    """
    saved(one, job)
    container = other.create(job, 2, COUNT, generation=1)
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(other.start, container)
        wait_until(lambda: starting.done() or shims(other, "start", container), 20, "the start",
                   every=0.001)  # fmt: skip
        for pid in shims(other, "start", container):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(EngineSaidError):
            starting.result()
    other.remove(container)

    assert {"processes": 0} == other.verb("reap", job, 2)


@pytest.mark.parametrize("program", ["criu", "runc"])
def test_killed_dumper_leaves_the_job_gap_free(one: ShimNode, job: int, program: str) -> None:
    """
    CRIU or runc killed in the middle of a dump costs the checkpoint and nothing else.
    """
    container = one.run(job, 1, LARGE)
    wait_progress(one, container)
    folder = one.checkpoints / str(job)
    with ThreadPoolExecutor(1) as pool:
        saving = pool.submit(one.checkpoint, container)
        wait_until((folder / "1/images/pages-1.img").exists, 20, "the dump", every=0.0005)
        (dumper,) = _shim_children(container, program)
        os.kill(dumper, signal.SIGKILL)
        with pytest.raises(EngineSaidError, match="was not saved"):
            saving.result()

    wait_progress(one, container)
    one.checkpoint(container)
    one.wait(container)
    assert_gap_free(one.logs(container))


def _shim_children(container: str, program: str) -> list[int]:
    """Find the runc of a dump, or the CRIU that it has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if words[0] == "runc" and "checkpoint" in words and container in words:
                found.append(int(entry.name))
    if program == "runc":
        return found
    children = Path(f"/proc/{found[0]}/task/{found[0]}/children")
    everybody = [path.read_text() for path in children.parent.parent.glob("*/children")]
    return [int(pid) for text in everybody for pid in text.split()]


@pytest.mark.parametrize("frozen_by", ["engine", "prolog"])
def test_engine_that_kills_a_frozen_job_saves_it(
    one: ShimNode, other: ShimNode, job: int, frozen_by: str
) -> None:
    """
    An engine that was killed in an eviction ends the job when it comes back: nothing is lost.
    """
    container = one.run(job, 1, LARGE)
    wait_progress(one, container)
    if frozen_by == "engine":
        one.api("POST", f"/containers/{container}/pause")
    else:
        one.verb("freeze", job, 1)
    one.api("POST", f"/containers/{container}/kill")
    assert 137 == one.wait(container)

    assert [] == one.processes(job, 1)
    assert one.receipt(job, 1)["ok"]
    resumed = other.run(job, 2, LARGE, generation=1)
    wait_progress(other, resumed)
    assert_gap_free(one.logs(container) + other.logs(resumed))


def test_killed_containerd_shim_of_a_frozen_job_saves_it(
    one: ShimNode, other: ShimNode, job: int
) -> None:
    """
    containerd cleans up after it by force and in five seconds; the job is saved all the same.
    """
    container = one.run(job, 1, LARGE)
    wait_progress(one, container)
    one.api("POST", f"/containers/{container}/pause")
    status = Path(f"/proc/{one.state(container)['Pid']}/status").read_text()
    parent = next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:"))
    os.kill(int(parent), signal.SIGKILL)
    wait_until(lambda: not one.processes(job, 1), 30, "the end of the job")

    wait_until((one.checkpoints / str(job) / "receipts/1.checkpoint.json").exists, 5, "it")
    assert one.receipt(job, 1)["ok"]
    resumed = other.run(job, 2, LARGE, generation=1)
    wait_progress(other, resumed)
    assert_gap_free(one.logs(container) + other.logs(resumed))
