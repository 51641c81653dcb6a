"""Nodes without a shared file system for checkpoints: jobs move, or wait and say why."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration import kills
from tests.integration.service_jobs import LADEN, Steady
from tests.integration.service_kit import QUICK, Service, story
from tests.integration.test_full_disk import MIB, Disk
from tests.testbed import Bed, config, wait_until

pytestmark = pytest.mark.bed


def _use_own_disks(bed: Bed) -> None:
    small = bed.layout.node("n2") / "checkpoints"
    small.mkdir(mode=0o700)
    Disk(small).mount()
    config.write(
        bed.layout,
        {
            **QUICK,
            "checkpoints": {
                "store": "streamed",
                "root": f"{bed.root}/nodes/{{node}}/checkpoints",
                "stream_mib_per_second": 40,
            },
        },
    )


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service.start(nodes=3, prepare=_use_own_disks) as service:
        yield service


@pytest.fixture(autouse=True)
def _open_nodes(service: Service) -> Iterator[None]:
    """Leave the nodes open and empty."""
    yield
    service.bed.run(["scancel", "--user=root"])
    for job in service.api.jobs(all_users=True):
        service.api.cancel(job["id"])
    service.cli("node", "undrain", *service.bed.nodes)
    wait_until(lambda: not kills.leftovers(service), 60, "the nodes to be empty")


def _folder(service: Service, node: str, job: int) -> Path:
    return service.bed.layout.node(node) / "checkpoints" / str(job)


def _holding(service: Service, job: int) -> list[str]:
    """Return the nodes that have a directory of the job."""
    return [node for node in service.bed.nodes if _folder(service, node, job).exists()]


def _move(service: Service, job: Steady) -> str:
    """Have a priority job take the job's node; return where it goes on."""
    there = service.wait_node(job.job)
    service.claim(there, "sleep 3", "--time=1")
    return service.wait_node(job.job, other_than=there)


def test_a_job_moves_three_times_and_leaves_nothing_behind(service: Service) -> None:
    """No line is lost or printed twice, and only its last node has anything of it."""
    job = Steady(service, "thrice", LADEN)
    job.wait_progress()
    for _ in range(3):
        _move(service, job)
        job.wait_progress()

    node = service.job(job.job)["node"]
    wait_until(lambda: _holding(service, job.job) == [node], 60, "the old copies to go")
    assert [node] == service.job(job.job)["checkpoints"][-1]["nodes"]
    assert "NODES" in service.cli("show", str(job.job)).stdout

    job.finish()
    wait_until(lambda: _holding(service, job.job) == [], 60, "its checkpoints to go")
    assert [] == [p.stem for p in _ledger(service) if int(p.stem) == job.job]


def _ledger(service: Service) -> list[Path]:
    return list((service.bed.layout.state / "ledger").glob("*.json"))


def _arriving(service: Service, node: str, job: int) -> bool:
    """Tell whether something of a generation has come to the node, and not all of it."""
    folder = _folder(service, node, job) / "arriving.1"
    return any(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _fill(disk: Disk) -> bool:
    """Take all the room there is, while somebody else takes it too; tell whether that worked."""
    try:
        disk.leave(0)
    except OSError:
        return False
    return True


def _reasons(service: Service, job: int) -> str:
    return story(service.job(job))


def _leave(service: Service, job: Steady) -> tuple[str, str, str]:
    """Have a priority job take the job's node; return it, the only open one, and the other."""
    source = service.wait_node(job.job)
    target, other = (node for node in service.bed.nodes if node != source)
    service.cli("node", "drain", other)
    job.wait_progress()
    service.claim(source, "sleep 600", "--time=11")
    return source, target, other


def test_a_source_that_dies_leaves_its_job_parked(service: Service) -> None:
    """
    Half a generation is none: the job waits for its node, says so, and then goes on.
    """
    job = Steady(service, "orphan", LADEN)
    source, target, _ = _leave(service, job)
    wait_until(lambda: _arriving(service, target, job.job), 120, "the stream to begin", every=0.01)
    service.bed.kill("dockerd", source)

    words = f"its checkpoint lies on {source}, which does not answer"
    wait_until(lambda: words in service.job(job.job)["reason"], 180, "the reason")
    assert "parked" == service.job(job.job)["state"]
    assert not (_folder(service, target, job.job) / "1").exists()

    service.bed.restart("dockerd", source)
    assert target == service.wait_node(job.job, other_than=source, seconds=180)
    job.wait_progress()
    service.bed.run(["scancel", "--user=root"])
    job.finish()


@pytest.mark.parametrize("moment", ["before", "meanwhile"])
def test_a_target_without_room_is_passed_over(service: Service, moment: str) -> None:
    """
    Nothing of the job is lost, the reason says what was full, and another node does it.
    """
    service.cli("node", "drain", "n2", "n3")
    job = Steady(service, f"room-{moment}", LADEN)
    assert "n1" == service.wait_node(job.job)
    disk = Disk(service.bed.layout.node("n2") / "checkpoints")
    service.cli("node", "undrain", "n2")
    job.wait_progress()
    try:
        if moment == "before":
            disk.leave(30 * MIB)
        service.claim("n1", "sleep 600", "--time=11")
        if moment == "meanwhile":
            wait_until(lambda: _arriving(service, "n2", job.job), 120, "the stream", every=0.01)
            wait_until(lambda: _fill(disk), 10, "the disk to be full", every=0.001)
        told = {"before": "no room for the checkpoint", "meanwhile": "no space left"}[moment]
        wait_until(lambda: told in _reasons(service, job.job), 120, "the reason")
        service.cli("node", "undrain", "n3")
        assert "n3" == service.wait_node(job.job, other_than="n1", seconds=180)
    finally:
        disk.clear()
    service.bed.run(["scancel", "--user=root"])
    job.finish()
    wait_until(lambda: _holding(service, job.job) == [], 60, "all of it to go")


def test_an_image_that_one_node_has_is_enough(service: Service) -> None:
    """A job starts where its image is not, and it is the same image."""
    name = "only/here:1"
    made = service.bed.docker("n1", "create", "stopgap/python:1").strip()
    service.bed.docker("n1", "commit", "--change", "ENV ONLY=here", made, name)
    service.bed.docker("n1", "rm", made)
    service.cli("node", "drain", "n1", "n2")

    words = ("submit", "--json", "--image", name, "--mem", "64M", "--", "sh", "-c", "echo $ONLY")
    job = int(json.loads(service.cli(*words).stdout)["id"])

    service.wait_state(job, "completed", seconds=180)
    assert b"here\n" == service.log(job)
    one, other = (
        service.bed.docker(node, "image", "inspect", "--format", "{{.Id}}", name)
        for node in ("n1", "n3")
    )
    assert one == other
    missing = ("submit", "--json", "--image", "not/there:1", "--mem", "64M", "--", "true")
    job = int(json.loads(service.cli(*missing).stdout)["id"])
    found = service.wait_state(job, "failed", seconds=120)
    assert "nor on any other node that answers" in found["reason"]
