"""Freezing, killing and counting on both kinds of cgroups, in the kernel's own words."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from tests.testbed import wait_until
from tests.unit import shim_module

pytestmark = pytest.mark.bed
#: A hybrid machine has both hierarchies; a unified one only the second.
TREES = {
    "v1": Path("/sys/fs/cgroup/freezer"),
    "v2": next(
        (p for p in map(Path, ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"))
         if (p / "cgroup.controllers").exists()),
        Path("/sys/fs/cgroup"),
    ),
}  # fmt: skip
COUNT = "import sys\nn = 0\nwhile True: n += 1; sys.stdout.write('x'); sys.stdout.flush()"


@pytest.fixture(params=TREES)
def shim(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    tree = TREES[request.param]
    control = "freezer.state" if request.param == "v1" else "cgroup.procs"
    if not any((folder / control).exists() for folder in (tree, *tree.iterdir())):
        pytest.skip(f"no cgroups of {request.param} here")
    module = shim_module.load()
    monkeypatch.setattr(module, "TREE", str(tree))
    monkeypatch.setattr(module, "UNIFIED", request.param == "v2")
    return module


@pytest.fixture
def segment(shim: ModuleType) -> Iterator[str]:
    """A segment's cgroup with one container below it."""
    place = f"{shim.TREE}/stopgap/test-{os.getpid()}/n1/7.3"
    os.makedirs(f"{place}/abc")  # noqa: PTH103  # the kernel's files, as the shim makes them
    yield place
    assert [] == shim.kill_all(place)
    for folder in (*shim.subtree(place), *(str(p) for p in list(Path(place).parents)[:2])):
        wait_until(partial(_removed, folder), 5, f"the end of {folder}")


def _removed(folder: str) -> bool:
    try:
        Path(folder).rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


@pytest.fixture
def job(segment: str, tmp_path: Path) -> Iterator[Callable[[], int]]:
    """A process in the container that leaves traces of running; how many there are."""
    trace = tmp_path / "trace"
    with trace.open("wb") as sink:
        process = subprocess.Popen([sys.executable, "-c", COUNT], stdout=sink)
    (Path(segment) / "abc" / "cgroup.procs").write_text(str(process.pid))
    wait_until(lambda: trace.stat().st_size, 10, "the first trace")
    yield lambda: trace.stat().st_size
    process.kill()
    process.wait()


def test_frozen_job_stands_still_until_it_is_thawed(
    shim: ModuleType, segment: str, job: Callable[[], int]
) -> None:
    """
    Once freeze has returned, not one instruction runs.
    """
    place = f"{segment}/abc"
    assert not shim.told_to_freeze(place)
    shim.freeze(place)
    assert shim.told_to_freeze(place)
    assert shim.is_frozen(place)
    before = job()
    end = time.monotonic() + 0.2
    wait_until(lambda: time.monotonic() > end, 1, "a while")
    assert before == job()

    shim.thaw(place)
    wait_until(lambda: job() > before, 10, "the job")


@pytest.mark.parametrize("frozen", [False, True], ids=["running", "frozen"])
def test_killed_segment_is_empty(
    shim: ModuleType, segment: str, job: Callable[[], int], frozen: bool
) -> None:
    """
    What kill_all returns is the proof: no process, frozen or not.
    """
    assert job()
    assert 1 == len(shim.processes(segment))
    if frozen:
        shim.freeze(f"{segment}/abc")

    assert [] == shim.kill_all(segment)
    assert [] == shim.processes(segment)


def test_only_containers_are_frozen(shim: ModuleType, segment: str) -> None:
    """
    Neither the segment's own cgroup nor the shim's leaf.
    """
    (Path(segment) / shim.OWN).mkdir()

    assert [f"{segment}/abc"] == shim.containers(segment)


def test_shim_in_its_leaf_is_seen_and_leaves(shim: ModuleType, segment: str) -> None:
    """
    A process that works on a create counts as a process of the segment.
    """
    home = shim.enter_own_cgroup(segment)
    assert [os.getpid()] == shim.processes(segment)
    shim.leave_own_cgroup(segment, home)

    assert [] == shim.processes(segment)
    assert not (Path(segment) / shim.OWN).exists()


def test_segments_are_found_by_instance_and_node(shim: ModuleType, segment: str) -> None:
    """
    Each node of a bed sees its own.
    """
    instance = f"test-{os.getpid()}"
    mine = shim.Conf(f"instance={instance}\nnode=n1\n")
    others = shim.Conf(f"instance={instance}\nnode=n2\n")

    assert [(7, 3, segment)] == shim.segments(mine)
    assert [] == shim.segments(others)
