"""Checkpoints on a file system that is full: the job stays whole, and the node is given back."""

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration import kills
from tests.integration.service_jobs import LADEN, STEADY, Steady, assert_continuous
from tests.integration.service_kit import QUICK, Service, story
from tests.testbed import Bed, wait_until

pytestmark = pytest.mark.bed

MIB = 1 << 20
SIZE = 256 * MIB
#: As long as a claim may stand before what is left is killed.
VACATE_SECONDS = 12
SETTINGS: dict[str, dict[str, object]] = {
    "policy": {**QUICK["policy"], "vacate_seconds": VACATE_SECONDS}
}


class Disk:
    """A small file system for the checkpoints, and what takes its room away."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._filler = place / "filler"

    def mount(self, *options: str) -> None:
        words = ["-o", ",".join((f"size={SIZE}", "mode=700", *options))]
        subprocess.run(["mount", "-t", "tmpfs", *words, "tmpfs", str(self.place)], check=True)

    def leave(self, size: int) -> None:
        """Fill it up to so many bytes."""
        about = os.statvfs(self.place)
        with self._filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, about.f_bavail * about.f_frsize - size)

    def leave_files(self, count: int) -> None:
        """Let no more than so many files be made."""
        about = os.statvfs(self.place)
        self.mount("remount", f"nr_inodes={about.f_files - about.f_ffree + count}")

    def clear(self) -> None:
        self._filler.unlink(missing_ok=True)
        self.mount("remount", "nr_inodes=100000")


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    def prepare(bed: Bed) -> None:
        Disk(bed.checkpoints).mount()

    with Service.start(settings=SETTINGS, prepare=prepare) as service:
        yield service


@pytest.fixture
def disk(service: Service) -> Iterator[Disk]:
    """The disk, with all its room again after the test, and the nodes open and empty."""
    disk = Disk(service.bed.checkpoints)
    yield disk
    disk.clear()
    for job in service.api.jobs(all_users=True):
        service.api.cancel(job["id"])
    service.cli("node", "undrain", *service.bed.nodes)
    wait_until(lambda: not kills.leftovers(service), 60, "the nodes to be empty")


def during_pages(_service: Service, _job: Steady, disk: Disk) -> None:
    disk.leave(1 * MIB)


def during_layer(_service: Service, _job: Steady, disk: Disk) -> None:
    disk.leave(40 * MIB)


def during_manifest(service: Service, job: Steady, disk: Disk) -> None:
    """As many files as the generation before had, but for the manifest."""
    last = service.store_of(job.job) / "1"
    names = [path for path in last.rglob("*") if path.name not in {"digests.json", "manifest.json"}]
    disk.leave_files(len([last, *names]))


@dataclass(frozen=True)
class Phase:
    """Where in a checkpoint there is no room."""

    program: str
    fill: Callable[[Service, Steady, Disk], None]
    #: What the job's reason speaks of, besides the disk.  The layer is written beside the
    #: images, and whoever comes last names the disk that it has filled.
    named: str


PHASES = {
    "pages": Phase(STEADY, during_pages, "criu"),
    "layer": Phase(LADEN, during_layer, ""),
    "manifest": Phase(STEADY, during_manifest, "manifest.json"),
}


@pytest.mark.parametrize("name", PHASES)
def test_job_goes_on(service: Service, disk: Disk, name: str) -> None:
    """
    When the claim goes away before its time, the job goes on where it was, without a gap, and
    can be moved as soon as there is room.
    """
    phase = PHASES[name]
    job = moved_once(service, name, phase.program)
    node = service.wait_node(job.job)
    before = service.segments()
    phase.fill(service, job, disk)
    service.api.drain(node)
    reason = wait_not_saved(service, job)
    service.api.undrain(node)
    service.wait_state(job.job, "running")
    job.wait_progress()

    assert "no space left" in reason.lower(), reason
    assert phase.named in reason, reason
    assert before == service.segments()
    assert ["1"] == generations(service, job)
    disk.clear()
    service.api.drain(node)
    service.wait_node(job.job, other_than=node)
    job.finish()
    found = service.job(job.job)
    counted = job.counted()
    assert list(range(len(counted))) == counted
    assert (0, 2) == (found["lost_seconds"], found["evictions"]), story(found)


def test_room_in_time(service: Service, disk: Disk) -> None:
    """
    The checkpoint is tried again while the claim stands, and succeeds when there is room.
    """
    job = moved_once(service, "in-time", STEADY)
    node = service.wait_node(job.job)
    disk.leave(1 * MIB)
    service.api.drain(node)
    wait_not_saved(service, job)
    disk.clear()

    service.api.undrain(next(n for n in service.bed.nodes if n != node))
    service.wait_node(job.job, other_than=node)
    job.finish()
    found = service.job(job.job)
    assert (0, 2) == (found["lost_seconds"], found["evictions"]), story(found)


def test_claim_that_stays(service: Service, disk: Disk) -> None:
    """
    When its time is up the job is killed and goes on from its last generation, counted as lost.
    """
    job = moved_once(service, "stays", STEADY)
    node = service.wait_node(job.job)
    disk.leave(1 * MIB)
    service.api.drain(node)
    wait_not_saved(service, job)
    wait_until(lambda: not service.on_node(node), 60 + VACATE_SECONDS, "the node to be empty")

    disk.clear()
    service.wait_node(job.job, other_than=node)
    job.wait_progress()
    job.stop()
    service.wait_state(job.job, "completed")
    assert_continuous(service.log(job.job))
    found = service.job(job.job)
    assert found["lost_seconds"] >= VACATE_SECONDS, story(found)
    assert ["evicted", "crashed", "completed"] == [s["outcome"] for s in found["segments"]]
    assert [None, 1, 1] == [s["resumed_from"] for s in found["segments"]]


def moved_once(service: Service, name: str, program: str) -> Steady:
    """Return a job that runs from its first generation."""
    job = Steady(service, name, program)
    node = service.wait_node(job.job)
    job.wait_progress()
    service.api.drain(node)
    service.wait_node(job.job, other_than=node)
    service.api.undrain(node)
    job.wait_progress()
    return job


def wait_not_saved(service: Service, job: Steady) -> str:
    """Wait until a checkpoint has failed, and return why."""
    wait_until(
        lambda: "not saved yet" in service.job(job.job)["reason"], 60, "the checkpoint to fail"
    )
    return str(service.job(job.job)["reason"])


def generations(service: Service, job: Steady) -> list[str]:
    """Return the generations of a job that are there, whole or not."""
    return sorted(path.name for path in service.store_of(job.job).iterdir() if path.name.isdigit())
