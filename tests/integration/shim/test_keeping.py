"""Checkpoints that the job goes on from: kept is kept, ended is ended, whoever is killed."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.shim.jobs import COUNT, LARGE, assert_gap_free, wait_progress
from tests.integration.shim.killing import kill_when
from tests.integration.shim.kit import EngineSaidError, ShimNode
from tests.testbed import wait_until

pytestmark = pytest.mark.bed


@pytest.mark.parametrize("frozen", [False, True], ids=["running", "frozen"])
def test_a_kept_job_goes_on(one: ShimNode, other: ShimNode, job: int, *, frozen: bool) -> None:
    """
    As it was found, and what was saved can be resumed.
    """
    container = one.run(job, 1, COUNT)
    wait_progress(one, container)
    if frozen:
        one.verb("freeze", job, 1)
    one.keep(job, 1, "trial")

    one.checkpoint(container)

    assert frozen == one.frozen(job, 1, container)
    receipt = one.receipt(job, 1)
    assert (True, "trial", None) == (receipt["ok"], receipt["kind"], receipt["empty"])
    assert "trial" == one.manifest(job, 1)["kind"]
    one.verb("thaw", job, 1)
    wait_progress(one, container)
    one.remove(container)
    resumed = other.run(job, 2, COUNT, generation=1)
    wait_progress(other, resumed)


def test_an_eviction_ends_what_was_kept(one: ShimNode, other: ShimNode, job: int) -> None:
    """
    The mark decides: gone, or of another segment, the next checkpoint is the end.
    """
    container = one.run(job, 1, COUNT)
    wait_progress(one, container)
    one.keep(job, 1)
    one.checkpoint(container)
    one.checkpoint(container)
    wait_progress(one, container)
    one.keep(job, 2)

    one.checkpoint(container)

    assert 137 == one.wait(container)
    assert [] == one.processes(job, 1)
    assert ["periodic", "periodic", "evict"] == [one.manifest(job, n)["kind"] for n in (1, 2, 3)]
    resumed = other.run(job, 2, COUNT, generation=3)
    wait_progress(other, resumed)
    assert_gap_free(one.logs(container) + other.logs(resumed))


def test_the_last_word_before_the_commit_counts(one: ShimNode, other: ShimNode, job: int) -> None:
    """
    Whoever wants the job gone in the middle of a dump need not wait for a second one.
    """
    container = one.run(job, 1, LARGE)
    wait_progress(one, container)
    one.keep(job, 1)
    with ThreadPoolExecutor(1) as pool:
        saving = pool.submit(one.checkpoint, container)
        pages = one.checkpoints / str(job) / "1/images/pages-1.img"
        wait_until(pages.exists, 20, "the dump", every=0.001)
        one.end(job)
        with suppress(EngineSaidError):
            saving.result()

    assert 137 == one.wait(container)
    assert "evict" == one.manifest(job, 1)["kind"]
    resumed = other.run(job, 2, LARGE, generation=1)
    wait_progress(other, resumed)
    assert_gap_free(one.logs(container) + other.logs(resumed))


MOMENTS: dict[str, Callable[[Path], Callable[[], object]]] = {
    "dumping": lambda f: (f / "1/images/pages-1.img").exists,
    "dumped": lambda f: (f / "1/images/descriptors.json").exists,
    "signing": lambda f: lambda: list(f.glob("1/manifest.json*")),
    "committed": lambda f: (f / "1/manifest.json").exists,
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_shim_ends_nothing(one: ShimNode, other: ShimNode, job: int, moment: str) -> None:
    """
    The job goes on in any case, and the eviction that follows is one.
    """
    container = one.run(job, 1, LARGE)
    wait_progress(one, container)
    one.keep(job, 1)
    folder = one.checkpoints / str(job)
    with ThreadPoolExecutor(1) as pool:
        saving = pool.submit(one.checkpoint, container)
        kill_when(one, "checkpoint", container, MOMENTS[moment](folder))
        with suppress(EngineSaidError):
            saving.result()

    one.verb("thaw", job, 1)
    wait_progress(one, container)
    one.end(job)
    one.checkpoint(container)
    assert 137 == one.wait(container)
    assert [] == one.processes(job, 1)
    last = max(int(name) for name in one.generations(job))
    assert "evict" == one.manifest(job, last)["kind"]
    resumed = other.run(job, 2, LARGE, generation=last)
    wait_progress(other, resumed)
    assert_gap_free(one.logs(container) + other.logs(resumed))


@pytest.mark.parametrize("moment", ["dumping", "committed"])
@pytest.mark.parametrize("victim", ["dockerd", "containerd"])
def test_a_killed_engine_loses_nothing(
    one: ShimNode, other: ShimNode, job: int, victim: str, moment: str
) -> None:
    """
    It lets the job go on when it comes back, or ends it, and then it was saved.
    """
    container = one.run(job, 1, LARGE)
    wait_progress(one, container)
    one.keep(job, 1)
    folder = one.checkpoints / str(job)
    with ThreadPoolExecutor(1) as pool:
        saving = pool.submit(one.checkpoint, container)
        wait_until(MOMENTS[moment](folder), 20, moment, every=0.001)
        one.bed.kill(victim, one.name)
        with suppress(EngineSaidError, OSError):
            saving.result()
        one.bed.restart("dockerd", one.name)

    one.verb("thaw", job, 1)
    if one.processes(job, 1):
        wait_progress(one, container)
        one.end(job)
        one.checkpoint(container)
    one.wait(container)
    wait_until(lambda: not one.processes(job, 1), 30, "the end")
    last = max(int(name) for name in one.generations(job))
    assert "evict" == one.manifest(job, last)["kind"]
    resumed = other.run(job, 2, LARGE, generation=last)
    wait_progress(other, resumed)
    assert_gap_free(one.logs(container) + other.logs(resumed))
