"""The PBS adapter, on stand-ins for PBS's programs, keeps what every batch adapter promises."""

from datetime import timedelta
from pathlib import Path

import pytest

from daemon.core.types import ClaimSource, NodeState
from tests.contract.adapter import AdapterContract, Bench, sources
from tests.contract.pbs_bench import PbsBench


@pytest.fixture
def pbs(tmp_path: Path) -> PbsBench:
    """Return four idle nodes."""
    return PbsBench(tmp_path)


class TestPbsAdapter(AdapterContract):
    """The suite on the stand-ins."""

    @pytest.fixture
    def bench(self, pbs: PbsBench) -> Bench:
        return pbs


def test_a_reservation_to_come_is_a_claim_with_a_time(pbs: PbsBench) -> None:
    """
    Its node is idle until then, as soon as its begin is known.
    """
    node = pbs.nodes[0]
    pbs.look()
    pbs.reserve(node, maintenance=False, after=1800)
    found = pbs.until(lambda cluster: cluster.nodes[node].state is NodeState.IDLE)
    (claim,) = found.nodes[node].claims

    assert ClaimSource.RESERVED is claim.source
    assert timedelta(minutes=29) < claim.at - found.taken < timedelta(minutes=31)

    pbs.clock.wait(1800)
    assert NodeState.UNAVAILABLE is pbs.look().nodes[node].state


def test_a_partly_used_node_is_busy(pbs: PbsBench) -> None:
    """
    PBS calls it free.
    """
    node = pbs.nodes[0]
    pbs.run("qsub", "-l", f"select=1:ncpus=1:vnode={node}", "job.sh")
    found = pbs.look().nodes[node]

    assert "free" == found.words
    assert NodeState.BUSY is found.state
    assert {ClaimSource.ALLOCATED} == sources(found)


def test_a_held_job_claims_nothing(pbs: PbsBench) -> None:
    """
    A job that was planned and then held is no reason to leave a node empty.
    """
    busy, idle = pbs.nodes[:2]
    pbs.submit(busy)
    waiting = pbs.submit(busy, idle)
    pbs.until(lambda cluster: ClaimSource.PLANNED in sources(cluster.nodes[idle]))
    pbs.run("qhold", str(waiting))

    pbs.until(lambda cluster: cluster.nodes[idle].state is NodeState.IDLE)
    pbs.run("qrls", str(waiting))
    pbs.until(lambda cluster: ClaimSource.PLANNED in sources(cluster.nodes[idle]))
