"""Slurm, the real one, keeps what every batch adapter promises."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from daemon.core.types import ClaimSource, NodeState
from tests.contract.adapter import AdapterContract, Bench, sources
from tests.contract.slurm_bench import SlurmBench
from tests.testbed import Bed

pytestmark = pytest.mark.bed


@pytest.fixture
def slurm(bed: Bed) -> Iterator[SlurmBench]:
    """The bed's Slurm, idle before and after."""
    bench = SlurmBench(bed)
    bench.reset()
    yield bench
    bench.reset()


class TestSlurmAdapter(AdapterContract):
    """The suite on slurmctld and slurmd."""

    @pytest.fixture
    def bench(self, slurm: SlurmBench) -> Bench:
        return slurm


def test_the_version_is_that_of_the_commands(slurm: SlurmBench) -> None:
    """
    What sinfo calls itself is what the adapter says.
    """
    slurm.adapter.look()

    assert slurm.bed.run(["sinfo", "--version"]).stdout.split()[1] == slurm.adapter.version


@pytest.mark.parametrize(
    "name",
    ["a\n99|RUNNING|1|n2|(null)", "x\nNodeName=n2 State=IDLE CPUTot=4", "\x1b[31m|", "é" * 150],
)
def test_users_cannot_forge_anything(slurm: SlurmBench, name: str) -> None:
    """
    A job's name changes nothing of what is believed, newlines and separators included.
    """
    mine, other = slurm.nodes[:2]
    slurm.submit(mine, name=name)
    cluster = slurm.until(lambda c: ClaimSource.ALLOCATED in sources(c.nodes[mine]))

    assert set(slurm.nodes) == set(cluster.nodes)
    assert NodeState.IDLE is cluster.nodes[other].state
    assert () == cluster.nodes[other].claims


def test_a_reason_cannot_forge_anything(slurm: SlurmBench) -> None:
    """
    The reason of a drain is text, even if it looks like a node.
    """
    node = slurm.nodes[0]
    forged = f"x\nNodeName={node} CPUAlloc=0 CPUTot=4 RealMemory=1 AllocMem=0 State=IDLE "
    slurm.drain(node, reason=forged)
    cluster = slurm.until(lambda c: c.nodes[node].state is not NodeState.IDLE)

    assert set(slurm.nodes) == set(cluster.nodes)
    assert {NodeState.IDLE} == {cluster.nodes[other].state for other in slurm.nodes[1:]}


def test_a_held_job_claims_nothing(slurm: SlurmBench) -> None:
    """
    A job that was planned and then held is no reason to leave a node empty.
    """
    busy, idle = slurm.nodes[:2]
    slurm.submit(busy)
    slurm.until(lambda cluster: cluster.nodes[busy].state is NodeState.BUSY)
    waiting = slurm.submit(busy, idle)
    slurm.until(lambda cluster: ClaimSource.PLANNED in sources(cluster.nodes[idle]))
    slurm.hold(waiting)

    slurm.until(lambda cluster: cluster.nodes[idle].state is NodeState.IDLE)


def test_a_reservation_to_come_is_a_claim_with_a_time(slurm: SlurmBench) -> None:
    """
    Its node is idle until then; Slurm itself flags it only when it begins.
    """
    node = slurm.nodes[0]
    slurm.reserve(node, maintenance=False, after=1800)
    found = slurm.until(lambda cluster: bool(cluster.nodes[node].claims))
    (claim,) = found.nodes[node].claims

    assert (ClaimSource.RESERVED, "IDLE") == (claim.source, found.nodes[node].words)
    assert NodeState.IDLE is found.nodes[node].state
    assert timedelta(minutes=28) < claim.at - found.taken < timedelta(minutes=31)


def test_a_controller_that_has_just_started_knows_nothing(slurm: SlurmBench) -> None:
    """
    Whatever is said in the first seconds, a node with a job is never called idle.
    """
    node = slurm.nodes[0]
    slurm.submit(node)
    slurm.until(lambda cluster: cluster.nodes[node].state is NodeState.BUSY)
    slurm.cut()
    slurm.restore()
    seen = set()

    def settled() -> bool:
        cluster = slurm.adapter.look()
        seen.add(cluster.nodes[node].state)
        return cluster.nodes[slurm.nodes[1]].state is NodeState.IDLE

    slurm.until(lambda _: settled())
    assert NodeState.IDLE not in seen


def test_the_bed_has_nothing_to_complain_about(slurm: SlurmBench) -> None:
    """
    The bed is set up as a site should be.
    """
    assert () == slurm.adapter.findings()
