"""The cluster model keeps what every batch adapter promises."""

from collections.abc import Callable
from datetime import timedelta
from itertools import count

import pytest

from adapters.base import UnreachableError
from adapters.mock_slurm.adapter import MockAdapter
from adapters.mock_slurm.model import Model
from adapters.mock_slurm.nouns import Machine, PriorityJob, Reservation
from daemon.core.types import Cluster, NodeName
from tests.contract.adapter import AdapterContract, Bench


class MockBench:
    """A model of four nodes; time passes by one second at a time."""

    full_words = "ALLOCATED"

    def __init__(self) -> None:
        self.nodes = tuple(NodeName(f"n{number}") for number in range(1, 5))
        self.model = Model([Machine(name=name) for name in self.nodes], start=1_800_000_000.0)
        self.adapter = MockAdapter(self.model)
        self._ids = count(1)

    def submit(self, *nodes: NodeName, limit: timedelta = timedelta(minutes=10)) -> int:
        job = PriorityJob(
            id=next(self._ids),
            submit=self.model.now,
            nodes=len(nodes),
            runtime=limit.total_seconds(),
            limit=limit.total_seconds(),
            named=nodes,
        )
        self.model.submit(job)
        return job.id

    def end(self, job: int) -> None:
        self.model.end(job)

    def suspend(self, job: int) -> None:
        self.model.suspend(job)

    def drain(self, node: NodeName) -> None:
        self.model.drain(node)

    def undrain(self, node: NodeName) -> None:
        self.model.drain(node, drained=False)

    def reserve(self, node: NodeName, *, maintenance: bool) -> None:
        now = self.model.now
        self.model.reserve(
            Reservation(name="r", nodes=(node,), begin=now, end=now + 3600, maintenance=maintenance)
        )

    def cut(self) -> None:
        self.adapter.cut()

    def restore(self) -> None:
        self.adapter.restore()

    def until(self, condition: Callable[[Cluster], bool]) -> Cluster:
        for _ in range(60):
            self.model.advance_to(self.model.now + 1)
            cluster = self.adapter.look()
            if condition(cluster):
                return cluster
        raise AssertionError(f"never came true; last: {dict(self.adapter.look().nodes)}")


class TestMockAdapter(AdapterContract):
    """The suite on the model."""

    @pytest.fixture
    def bench(self) -> Bench:
        return MockBench()


def test_a_cluster_without_nodes_is_no_answer() -> None:
    """
    An empty list of nodes is silence, as with the real adapters.
    """
    with pytest.raises(UnreachableError):
        MockAdapter(Model()).look()
