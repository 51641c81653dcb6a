"""The real engine keeps the same promises where nodes share no file system for checkpoints."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.core.types import JobId, NodeName
from migration.settings import StreamSettings
from migration.stores.base import Store
from migration.stores.carrying import Carrier
from migration.stores.ledger import Ledger
from migration.stores.pace import Pace
from migration.stores.streamed import StreamedStore
from tests.contract.engine import EngineContract
from tests.contract.engine_bench import Bench
from tests.contract.engine_keeping import KeepingContract
from tests.contract.test_engine_docker import DockerBench

pytestmark = pytest.mark.bed


class StreamedBench(DockerBench):
    """Two nodes whose checkpoints lie on a disk of their own."""

    settings = StreamSettings()

    def _root(self) -> tuple[str, bool]:
        return f"{self._bed.layout.root}/nodes/{{node}}/checkpoints", True

    def _store(self) -> Store:
        self.ledger = Ledger(self._bed.layout.state / "ledger")
        self.ledger.open()
        pace = Pace(self.clock, self.settings.mib_per_second)
        carrier = Carrier(self.access, self.settings, pace, self.clock)
        return StreamedStore(self.access, self.ledger, carrier)

    def folder(self, job: JobId, node: NodeName) -> Path:
        return self._bed.layout.node(node) / "checkpoints" / str(job)


@pytest.fixture(scope="module")
def nodes() -> Iterator[StreamedBench]:
    with StreamedBench.started() as bench:
        yield bench


class TestStreamedEngine(EngineContract, KeepingContract):
    """All promises, for real."""

    @pytest.fixture
    def bench(self, nodes: StreamedBench) -> Iterator[Bench]:
        yield nodes
        nodes.clean()
