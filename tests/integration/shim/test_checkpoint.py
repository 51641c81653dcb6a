"""Checkpoints that fail, or meet a job that somebody has frozen."""

import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.shim.jobs import COUNT, COUNTING, assert_gap_free, wait_progress
from tests.integration.shim.kit import EngineSaidError, ShimNode
from tests.testbed import wait_until

pytestmark = pytest.mark.bed


@pytest.fixture
def small_disk(one: ShimNode) -> Iterator[Callable[[str], Path]]:
    """A file system of its own for the checkpoints of a node, resized at will."""
    place = one.bed.root / f"small-{secrets.token_hex(4)}"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "small", str(place)], check=True)

    def resize(options: str) -> Path:
        subprocess.run(["mount", "-o", f"remount,{options}", str(place)], check=True)
        return place

    yield resize
    subprocess.run(["umount", "--lazy", str(place)], check=True)


BIG_LAYER = """
import time
keep = bytearray(b"x" * (4 << 20))
open("/big", "wb").write(b"y" * (24 << 20))
for n in range(10**9): print(n, flush=True); time.sleep(.01)
"""


@pytest.mark.parametrize("frozen", [False, True], ids=["running", "frozen"])
@pytest.mark.parametrize("phase", ["dump", "layer", "manifest"])
def test_full_disk_leaves_the_job_as_it_was(
    one: ShimNode, job: int, small_disk: Callable[[str], Path], phase: str, frozen: bool
) -> None:
    """
    A checkpoint that does not fit loses nothing, in whatever phase the disk is full.
    """
    place = small_disk("size=64m")
    command = ["python3", "-c", BIG_LAYER]
    container = one.run(job, 1, command)
    wait_progress(one, container)
    one.configure(checkpoints=place)
    (place / str(job)).mkdir(mode=0o700)
    if phase == "manifest":
        needed = _inodes_of_a_generation(one, job, place, command)
        small_disk(f"nr_inodes={_inodes(place) + needed}")
    else:
        small_disk({"dump": "size=1m", "layer": "size=16m"}[phase])
    if frozen:
        assert one.verb("freeze", job, 1) == {"frozen": True}

    with pytest.raises(EngineSaidError, match=r"(?i)no space left"):
        one.checkpoint(container)

    assert frozen == one.frozen(job, 1, container)
    assert [] == [entry for entry in (place / str(job)).iterdir() if entry.name.isdigit()]
    if frozen:
        seen = one.logs(container)
        assert {"frozen": False} == one.verb("thaw", job, 1)
        assert seen == one.logs(container)[: len(seen)]
    wait_progress(one, container)
    small_disk("size=128m,nr_inodes=10000")
    one.checkpoint(container)
    one.wait(container)
    assert_gap_free(one.logs(container))


def _inodes(place: Path) -> int:
    return os.statvfs(place).f_files - os.statvfs(place).f_ffree


def _inodes_of_a_generation(node: ShimNode, job: int, place: Path, command: list[str]) -> int:
    """Count what one of the same job takes, up to its manifest."""
    twin = 10_000 + job
    container = node.run(twin, 1, command)
    wait_progress(node, container)
    folder = place / str(twin)
    folder.mkdir(mode=0o700)
    before = _inodes(place)
    node.checkpoint(container)
    node.wait(container)
    node.remove(container)
    node.verb("reap", twin, 1)
    wait_until((folder / "1" / "digests.json").exists, 10, "the digests")
    needed = _inodes(place) - before
    shutil.rmtree(folder)
    # Without manifest, digests, receipt; the lock and receipts are the same.
    return needed - 4


def test_undumpable_job_goes_on_and_says_why(one: ShimNode, job: int) -> None:
    """
    What CRIU refuses is in the error and in the receipt, in CRIU's own words.
    """
    folder = one.bed.data / str(job)
    folder.mkdir()
    program = """
import socket, time
s = socket.socket(socket.AF_UNIX); s.connect("/data/outside")
for n in range(10**9): print(n, flush=True); time.sleep(.01)
"""
    with socket.socket(socket.AF_UNIX) as outside:
        outside.bind(str(folder / "outside"))
        outside.listen()
        container = one.run(job, 1, ["python3", "-c", program], binds=[f"{folder}:/data"])
        wait_progress(one, container)

        with pytest.raises(EngineSaidError, match=r"Error \(criu/sk-unix"):
            one.checkpoint(container)

        receipt = one.receipt(job, 1)
        assert (False, None) == (receipt["ok"], receipt["generation"])
        assert "Error (criu/sk-unix" in receipt["error"]
        assert [] == one.generations(job)
        wait_progress(one, container)
        assert_gap_free(one.logs(container))


def test_cancelled_checkpoint_leaves_the_job_gap_free(one: ShimNode, job: int) -> None:
    """
    A dump that is told to stop leaves the job running, and the next one succeeds.
    """
    program = "x = bytearray(1 << 30)\nfor i in range(0, 1 << 30, 4096): x[i] = 1\n" + COUNTING
    container = one.run(job, 1, ["python3", "-c", program])
    wait_progress(one, container)
    folder = one.checkpoints / str(job)
    folder.mkdir(exist_ok=True)
    with ThreadPoolExecutor(1) as pool:
        saving = pool.submit(one.checkpoint, container)
        wait_until(lambda: list(folder.glob("*/images/pages-*")), 20, "the dump", every=0.001)
        (folder / "cancel").touch()
        with pytest.raises(EngineSaidError, match="cancelled"):
            saving.result()

    assert not one.frozen(job, 1, container)
    wait_progress(one, container)
    (folder / "cancel").unlink()
    one.checkpoint(container)
    one.wait(container)
    assert_gap_free(one.logs(container))


def test_found_frozen_job_is_saved_and_killed(one: ShimNode, other: ShimNode, job: int) -> None:
    """
    A job that a prolog has frozen is saved without running an instruction.
    """
    container = one.run(job, 1, COUNT)
    wait_progress(one, container)
    one.verb("freeze", job, 1)
    seen = one.logs(container)
    one.checkpoint(container)
    assert 137 == one.wait(container)
    assert one.receipt(job, 1)["found_frozen"]
    assert seen == one.logs(container)
    resumed = other.run(job, 2, COUNT, generation=1)
    wait_progress(other, resumed)
    assert_gap_free(seen + other.logs(resumed))


def test_kill_reaches_a_frozen_job(one: ShimNode, job: int) -> None:
    """
    ``docker kill`` ends what somebody else has frozen.
    """
    container = one.run(job, 1, COUNT)
    one.verb("freeze", job, 1)

    one.api("POST", f"/containers/{container}/kill")

    assert 137 == one.wait(container)
    assert [] == one.processes(job, 1)


def test_pause_of_the_engine_nests(one: ShimNode, job: int) -> None:
    """
    ``docker unpause`` leaves frozen what was frozen before ``docker pause``.
    """
    container = one.run(job, 1, COUNT)
    one.verb("freeze", job, 1)
    one.api("POST", f"/containers/{container}/pause")
    one.api("POST", f"/containers/{container}/unpause")
    assert one.frozen(job, 1, container)

    one.api("POST", f"/containers/{container}/pause")
    one.verb("thaw", job, 1)
    wait_progress(one, container)


def test_job_stopped_by_itself_stays_stopped(one: ShimNode, other: ShimNode, job: int) -> None:
    """
    Only what ran before runs after: a child that the job has stopped waits for its SIGCONT.
    """
    program = """
import os, signal, time
child = os.fork()
if child == 0:
    while True: time.sleep(.01)
os.kill(child, signal.SIGSTOP); os.waitpid(child, os.WUNTRACED)
while True:
    print(open(f"/proc/{child}/stat").read().split()[2], flush=True); time.sleep(.05)
"""
    container = one.run(job, 1, ["python3", "-c", program])
    wait_progress(one, container)
    one.checkpoint(container)
    one.wait(container)
    resumed = other.run(job, 2, ["python3", "-c", program], generation=1)
    wait_progress(other, resumed)

    assert {b"T"} == set(other.logs(resumed).split())
