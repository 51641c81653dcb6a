"""What wraps any batch adapter, on the cluster model."""

from datetime import UTC, datetime

import pytest

from adapters.base import UnreachableError
from adapters.mock_slurm.adapter import MockAdapter
from adapters.mock_slurm.model import Model
from adapters.mock_slurm.nouns import Machine
from adapters.registry import MockSettings, PbsSettings, SlurmSettings, create
from adapters.wrappers import Doubting, Retrying
from daemon.core.types import NodeName


class ManualClock:
    """Time that passes when somebody waits; what happens meanwhile can be told."""

    def __init__(self) -> None:
        self.seconds = 1_800_000_000.0
        self.waits: list[float] = []
        self.during: dict[int, MockAdapter] = {}

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds

    def wait(self, seconds: float) -> None:
        self.seconds += seconds
        self.waits.append(seconds)
        if len(self.waits) in self.during:
            self.during[len(self.waits)].restore()


def cluster(count: int) -> Model:
    return Model([Machine(name=NodeName(f"n{number}")) for number in range(count)], start=1.8e9)


@pytest.mark.parametrize("back_after", [1, 2])
def test_a_short_silence_is_bridged(back_after: int) -> None:
    """
    The second or third try is answered, and the pauses were kept.
    """
    clock, inner = ManualClock(), MockAdapter(cluster(2))
    inner.cut()
    clock.during = {back_after: inner}

    assert 2 == len(Retrying(inner, tries=3, pause_seconds=5, clock=clock).look().nodes)
    assert [5.0] * back_after == clock.waits


def test_a_long_silence_is_told() -> None:
    """
    After the last try the error is the adapter's own.
    """
    clock, inner = ManualClock(), MockAdapter(cluster(2))
    inner.cut("no controller")

    with pytest.raises(UnreachableError, match="no controller"):
        Retrying(inner, tries=3, pause_seconds=5, clock=clock).look()
    assert [5.0, 5.0] == clock.waits


def test_a_wrapper_is_an_adapter() -> None:
    """
    Everything that is not wrapped is the inner adapter's.
    """
    inner = MockAdapter(cluster(2))
    outer = Doubting(Retrying(inner, tries=2, pause_seconds=1, clock=ManualClock()))
    outer.look()

    assert (inner.name, inner.version, inner.capabilities) == (
        outer.name,
        outer.version,
        outer.capabilities,
    )
    assert inner.findings() == outer.findings()


def test_vanished_nodes_are_doubted_until_seen_again() -> None:
    """
    Half a cluster is not believed gone at the first two words.
    """
    inner = MockAdapter(cluster(10))
    adapter = Doubting(inner, looks=3)
    adapter.look()
    inner.model = cluster(5)

    for _ in range(2):
        with pytest.raises(UnreachableError, match=r"5 of 10 nodes are suddenly missing \(n5, n6"):
            adapter.look()
    assert 5 == len(adapter.look().nodes)
    assert 5 == len(adapter.look().nodes)


def test_doubt_ends_when_the_nodes_are_back() -> None:
    """
    Each shrink is counted from its beginning.
    """
    inner = MockAdapter(cluster(10))
    adapter = Doubting(inner, looks=2)
    for size in (10, 5, 10, 5):
        inner.model = cluster(size)
        if size == 5:
            with pytest.raises(UnreachableError):
                adapter.look()
        else:
            adapter.look()


def test_silence_in_between_neither_confirms_nor_refutes() -> None:
    """
    Only answers count.
    """
    inner = MockAdapter(cluster(10))
    adapter = Doubting(inner, looks=3)
    adapter.look()
    inner.model = cluster(5)
    for cut in (False, True, False):
        if cut:
            inner.cut("nobody there")
        else:
            inner.restore()
        with pytest.raises(UnreachableError):
            adapter.look()

    assert 5 == len(adapter.look().nodes)


def test_a_few_nodes_may_go_and_any_may_come() -> None:
    """
    Administrators take single nodes out; growth is never doubted.
    """
    inner = MockAdapter(cluster(20))
    adapter = Doubting(inner)
    for size in (20, 18, 40):
        inner.model = cluster(size)
        assert size == len(adapter.look().nodes)


def test_settings_make_adapters() -> None:
    """
    Nothing is asked while an adapter is made; the model lives by the given clock.
    """
    clock = ManualClock()
    mock = create(MockSettings(nodes=2, cpus=16, memory_mib=1000), clock)

    assert "slurm" == create(SlurmSettings(bin_dir="/nowhere"), clock).name
    assert "pbs" == create(PbsSettings(bin_dir="/nowhere"), clock).name
    before = mock.look()
    clock.wait(60)
    assert 60 == (mock.look().taken - before.taken).total_seconds()
    assert {(16, 1000)} == {(node.cpus, node.memory_mib) for node in before.nodes.values()}
