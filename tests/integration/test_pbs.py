"""The service on PBS, with real engines and real checkpoints: PBS itself is a stand-in."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from daemon.clock import SystemClock
from daemon.core.types import NodeName
from tests.contract.pbs_bench import PbsBench
from tests.integration.service_jobs import Steady
from tests.integration.service_kit import QUICK, Service
from tests.testbed import wait_until

pytestmark = pytest.mark.bed


@pytest.fixture(scope="module")
def pbs(tmp_path_factory: pytest.TempPathFactory) -> PbsBench:
    """Return the batch system of two nodes, in real time."""
    folder = tmp_path_factory.mktemp("pbs")
    return PbsBench(folder, nodes=2, clock=SystemClock(), real_time=True)


@pytest.fixture(scope="module")
def service(pbs: PbsBench) -> Iterator[Service]:
    batch = {"kind": "pbs", "bin_dir": str(pbs.bin_dir), "conf": "", "poll_seconds": 1}
    with Service.start(settings=QUICK | {"batch": batch}) as service:
        yield service


def test_a_job_moves_out_of_the_way_of_jobs_of_pbs(service: Service, pbs: PbsBench) -> None:
    """
    Each qsub for its node moves the job to the other one, and it notices nothing.
    """
    job = Steady(service, "pbs")
    node = service.wait_node(job.job)
    for _ in range(3):
        job.wait_progress()
        priority = pbs.submit(NodeName(node), limit=timedelta(hours=1))
        node = service.wait_node(job.job, other_than=node)
        pbs.end(priority)
    job.finish()

    found = service.job(job.job)
    counted = job.counted()
    assert list(range(len(counted))) == counted
    assert (3, 3, 0) == (found["evictions"], found["migrations"], found["lost_seconds"])
    assert ("pbs", "23.06.06") == (
        service.api.status()["batch"],
        service.api.status()["batch_version"],
    )
    wait_until(lambda: not service.segments(), 20, "the nodes to be empty")


def test_the_configuration_is_checked_against_pbs(service: Service, pbs: PbsBench) -> None:
    """
    A good site passes; one whose server is down says so.
    """
    words = ("config", "check", "--config", str(service.bed.config))
    good = service.cli(*words, check=False)
    assert (f"{service.bed.config} is usable\n", "") == (good.stdout, good.stderr)

    pbs.cut()
    bad = service.cli(*words, check=False)
    pbs.restore()
    assert "qstat: cannot connect to server vm (errno=15010)" in bad.stdout
