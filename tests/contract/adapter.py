"""What every batch adapter promises.  Subclassed once per adapter, with a bench for it."""

from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

import pytest

from adapters.base import BatchAdapter, UnreachableError
from daemon.core.types import Claim, ClaimSource, Cluster, Node, NodeName, NodeState


class Bench(Protocol):
    """A cluster with at least three idle nodes, on which a test can make things happen."""

    @property
    def adapter(self) -> BatchAdapter: ...

    @property
    def nodes(self) -> tuple[NodeName, ...]: ...

    @property
    def full_words(self) -> str:
        """What the batch system calls a node all of whose cores are given away."""

    def submit(self, *nodes: NodeName, limit: timedelta = timedelta(minutes=10)) -> int:
        """Let a priority job ask for exactly these nodes, whole, and return its id."""

    def end(self, job: int) -> None:
        """End a priority job."""

    def suspend(self, job: int) -> None:
        """Stop a priority job where it is."""

    def drain(self, node: NodeName) -> None: ...

    def undrain(self, node: NodeName) -> None: ...

    def reserve(self, node: NodeName, *, maintenance: bool) -> None:
        """Reserve a node from now on."""

    def cut(self) -> None:
        """Make the batch system unreachable."""

    def restore(self) -> None:
        """Make it reachable again."""

    def until(self, condition: Callable[[Cluster], bool]) -> Cluster:
        """Let time pass until a look meets the condition, and return that look."""


def sources(node: Node) -> set[ClaimSource]:
    """Say who claims a node."""
    return {claim.source for claim in node.claims}


class AdapterContract:
    """The suite; ``bench`` is the subclass's fixture."""

    def test_an_idle_cluster_is_idle(self, bench: Bench) -> None:
        """
        Every node is listed, idle, with its size, and nobody claims any.
        """
        cluster = bench.adapter.look()

        assert set(bench.nodes) == set(cluster.nodes)
        for name, node in cluster.nodes.items():
            assert name == node.name
            assert NodeState.IDLE is node.state, node.words
            assert () == node.claims
            assert node.cpus > 0
            assert node.memory_mib > 0
            assert node.partitions

    def test_a_look_tells_its_time_and_the_version(self, bench: Bench) -> None:
        """
        The version is known once the batch system has answered, the moment is in UTC.
        """
        cluster = bench.adapter.look()

        assert timedelta() == cluster.taken.utcoffset()
        assert bench.adapter.version
        assert bench.adapter.name

    def test_two_looks_at_the_same_are_the_same(self, bench: Bench) -> None:
        """
        Nothing of an answer but its time depends on when it was asked for.
        """
        job = bench.submit(bench.nodes[0])
        bench.until(lambda cluster: cluster.nodes[bench.nodes[0]].state is NodeState.BUSY)

        assert bench.adapter.look().nodes == bench.adapter.look().nodes
        bench.end(job)

    def test_an_allocated_node_is_busy_until_its_job_ends(self, bench: Bench) -> None:
        """
        The priority job's node is claimed, its neighbours are not, and then it is idle again.
        """
        mine, other = bench.nodes[:2]
        job = bench.submit(mine)

        def allocated(cluster: Cluster) -> list[Claim]:
            found = cluster.nodes[mine].claims
            return [claim for claim in found if claim.source is ClaimSource.ALLOCATED]

        bench.until(lambda cluster: bool(allocated(cluster)))
        # Whose it is may be told by the next look only: not every one asks for the jobs.
        cluster = bench.until(lambda cluster: str(job) in allocated(cluster)[0].detail)

        (claim,) = allocated(cluster)
        assert NodeState.BUSY is cluster.nodes[mine].state
        assert mine == claim.node
        assert claim.at <= cluster.taken + timedelta(seconds=1)
        assert NodeState.IDLE is cluster.nodes[other].state

        bench.end(job)
        cluster = bench.until(lambda cluster: cluster.nodes[mine].state is NodeState.IDLE)
        assert () == cluster.nodes[mine].claims

    def test_a_job_on_several_nodes_claims_each(self, bench: Bench) -> None:
        """
        Lists of nodes are taken apart.
        """
        wanted = bench.nodes[:3]
        job = bench.submit(*wanted)
        cluster = bench.until(lambda cluster: cluster.nodes[wanted[0]].state is NodeState.BUSY)

        assert {NodeState.BUSY} == {cluster.nodes[node].state for node in wanted}
        assert [{ClaimSource.ALLOCATED}] * 3 == [sources(cluster.nodes[node]) for node in wanted]
        bench.end(job)

    def test_a_drained_node_is_not_ours(self, bench: Bench) -> None:
        """
        An idle node that is drained is claimed, and free once that is lifted.
        """
        node = bench.nodes[0]
        bench.drain(node)
        cluster = bench.until(lambda cluster: cluster.nodes[node].state is not NodeState.IDLE)

        assert NodeState.UNAVAILABLE is cluster.nodes[node].state
        assert {ClaimSource.DRAINING} == sources(cluster.nodes[node])

        bench.undrain(node)
        bench.until(lambda cluster: cluster.nodes[node].state is NodeState.IDLE)

    def test_a_draining_node_is_not_ours_either(self, bench: Bench) -> None:
        """
        A drain does not hide the priority job that is still there.
        """
        node = bench.nodes[0]
        job = bench.submit(node)
        bench.until(lambda cluster: cluster.nodes[node].state is NodeState.BUSY)
        bench.drain(node)
        cluster = bench.until(lambda cluster: ClaimSource.DRAINING in sources(cluster.nodes[node]))

        assert NodeState.UNAVAILABLE is cluster.nodes[node].state
        assert ClaimSource.ALLOCATED in sources(cluster.nodes[node])
        bench.end(job)

    @pytest.mark.parametrize("maintenance", [False, True])
    def test_a_reserved_node_is_not_ours(self, bench: Bench, *, maintenance: bool) -> None:
        """
        Idle in a reservation is not idle.
        """
        node = bench.nodes[1]
        bench.reserve(node, maintenance=maintenance)
        cluster = bench.until(lambda cluster: cluster.nodes[node].state is not NodeState.IDLE)

        assert NodeState.UNAVAILABLE is cluster.nodes[node].state
        assert ClaimSource.RESERVED in sources(cluster.nodes[node])

    def test_a_planned_node_says_when(self, bench: Bench) -> None:
        """
        An idle node that is kept for a waiting job is claimed for the job's expected start.
        """
        busy, idle = bench.nodes[:2]
        limit = timedelta(minutes=10)
        first = bench.submit(busy, limit=limit)
        began = bench.until(lambda cluster: cluster.nodes[busy].state is NodeState.BUSY).taken
        waiting = bench.submit(busy, idle)
        cluster = bench.until(lambda cluster: ClaimSource.PLANNED in sources(cluster.nodes[idle]))

        (claim,) = cluster.nodes[idle].claims
        assert NodeState.IDLE is not cluster.nodes[idle].state
        assert abs(claim.at - (began + limit)) < timedelta(minutes=2)
        assert str(waiting) in claim.detail
        assert NodeState.IDLE is cluster.nodes[bench.nodes[2]].state
        bench.end(waiting)
        bench.end(first)

    def test_a_suspended_job_keeps_its_node(self, bench: Bench) -> None:
        """
        A stopped priority job gives back its cores but not its memory.
        """
        node = bench.nodes[0]
        job = bench.submit(node)
        bench.until(lambda cluster: cluster.nodes[node].state is NodeState.BUSY)
        bench.suspend(job)
        cluster = bench.until(lambda cluster: bench.full_words not in cluster.nodes[node].words)

        assert NodeState.BUSY is cluster.nodes[node].state
        assert ClaimSource.ALLOCATED in sources(cluster.nodes[node])
        bench.end(job)

    def test_claims_come_earliest_first(self, bench: Bench) -> None:
        """
        Whoever reads the first claim of a node knows when it is wanted.
        """
        busy, idle = bench.nodes[:2]
        first = bench.submit(busy)
        bench.until(lambda cluster: cluster.nodes[busy].state is NodeState.BUSY)
        waiting = bench.submit(busy, idle)
        cluster = bench.until(lambda cluster: ClaimSource.PLANNED in sources(cluster.nodes[busy]))

        assert [ClaimSource.ALLOCATED, ClaimSource.PLANNED] == [
            claim.source for claim in cluster.nodes[busy].claims
        ]
        bench.end(waiting)
        bench.end(first)

    def test_silence_is_not_emptiness(self, bench: Bench) -> None:
        """
        A dead batch system never looks like a cluster without jobs or nodes.
        """
        before = bench.adapter.look()
        bench.cut()
        with pytest.raises(UnreachableError):
            bench.adapter.look()

        bench.restore()
        after = bench.until(lambda cluster: set(cluster.nodes) == set(before.nodes))
        assert after.taken > before.taken
