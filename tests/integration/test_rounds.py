"""Twenty rounds of one job between two nodes, through the daemon: nothing is lost or doubled."""

from collections.abc import Iterator

import pytest

from tests.integration.service_jobs import Steady
from tests.integration.service_kit import Service
from tests.testbed import wait_until

pytestmark = pytest.mark.bed

ROUNDS = 20


@pytest.fixture
def service() -> Iterator[Service]:
    with Service.start() as service:
        yield service


def test_twenty_rounds_are_gap_free(service: Service) -> None:
    """
    Each priority job moves the job to the other node, and it notices nothing.
    """
    job = Steady(service, "rounds")
    node = service.wait_node(job.job)
    for _ in range(ROUNDS):
        job.wait_progress()
        service.claim(node)
        node = service.wait_node(job.job, other_than=node)
    job.finish()

    found = service.job(job.job)
    counted = job.counted()
    assert list(range(len(counted))) == counted
    assert (ROUNDS, ROUNDS, 0) == (found["evictions"], found["migrations"], found["lost_seconds"])
    assert ["evicted"] * ROUNDS + ["completed"] == [s["outcome"] for s in found["segments"]]
    assert [None, *range(1, ROUNDS + 1)] == [s["resumed_from"] for s in found["segments"]]
    wait_until(lambda: not service.segments(), 20, "the nodes to be empty")
    wait_until(
        lambda: not service.bed.run(["squeue", "--noheader"]).stdout, 30, "the priority jobs"
    )
    assert not service.store_of(job.job).exists()
