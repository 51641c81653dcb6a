"""The real engine keeps the same promises where nodes share no file system for checkpoints."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from daemon.clock import Clock
from daemon.core.types import AfterCrash, Epoch, Generation, JobId, NodeName
from migration.base import (
    CheckpointAwayError,
    EngineUnreachableError,
    NotResumableError,
    StartOrder,
)
from migration.engine import DockerEngine
from migration.stores.base import Store
from migration.stores.carrying import Carrier
from migration.stores.ledger import Ledger
from migration.stores.pace import Pace
from migration.stores.streamed import StreamedStore
from tests.contract.engine import EngineContract
from tests.contract.engine_bench import Act, Bench, lines, next_order, printed_by
from tests.contract.engine_keeping import KeepingContract
from tests.contract.test_engine_docker import COMMANDS, RELEASES, DockerBench

pytestmark = pytest.mark.bed


Fault = Callable[[Iterator[bytes]], Iterator[bytes]]


class Line(Pace):
    """What lies between two nodes; a test may do to the next streams what lines do."""

    def __init__(self, clock: Clock, mib_per_second: float) -> None:
        super().__init__(clock, mib_per_second)
        self.faults: list[Fault] = []
        #: The bytes of each stream.
        self.sent: list[int] = []

    def held(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        fault = self.faults.pop(0) if self.faults else iter
        self.sent.append(0)
        for piece in super().held(fault(iter(pieces))):
            self.sent[-1] += len(piece)
            yield piece


def flip(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Change one bit in the midst of the job's memory."""
    at = 20 << 20
    for piece in pieces:
        if 0 <= at < len(piece):
            piece = piece[:at] + bytes([piece[at] ^ 1]) + piece[at + 1 :]  # noqa: PLW2901
        at -= len(piece)
        yield piece


def cut(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Break before the end."""
    left = 60 << 20
    for piece in pieces:
        left -= len(piece)
        if left < 0:
            raise EngineUnreachableError("the line is dead")
        yield piece


class StreamedBench(DockerBench):
    """Two nodes whose checkpoints lie on a disk of their own."""

    packing = "none"
    #: MiB in a second; 0 is no bound.
    bound = 0.0

    def _root(self) -> tuple[str, bool]:
        return f"{self._bed.layout.root}/nodes/{{node}}/checkpoints", True

    def _store(self) -> Store:
        self.ledger = Ledger(self._bed.layout.state / "ledger")
        self.ledger.open()
        carrier = Carrier(self.access, self.packing, self._pace(), self.clock)
        return StreamedStore(self.access, self.ledger, carrier)

    def _pace(self) -> Pace:
        self.line = Line(self.clock, self.bound)
        return self.line

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

    @pytest.fixture
    def parked(self, nodes: StreamedBench, bench: Bench) -> StartOrder:
        """The order that resumes a job elsewhere, whose memory and layer are some 40 MB each."""
        nodes.line.sent.clear()
        order = bench.order(Act.COUNT, bench.here)
        random = "head -c 40000000 /dev/urandom >"
        slow = ("sh", "-c", f"{random} /dev/shm/x; {random} /x; {COMMANDS[Act.COUNT][-1]}")
        order = replace(order, spec=replace(order.spec, command=slow, memory_mib=128))
        placed = bench.engine.place(order)
        bench.await_(lambda: printed_by(bench, order) > 0)
        saved = bench.engine.checkpoint(order.ref, deadline_seconds=60)
        later = next_order(order, bench.there, placed.image_digest, saved.checkpoint.generation)
        return replace(later, seen=nodes.clock.now())

    def _log(self, bench: Bench, *orders: StartOrder) -> bytes:
        return b"".join(b"".join(bench.engine.logs(order.ref)) for order in orders)

    def _goes_on(self, bench: Bench, later: StartOrder) -> None:
        bench.await_(lambda: printed_by(bench, later) > 2)
        bench.engine.kill(later.ref)
        first = replace(later, ref=replace(later.ref, epoch=Epoch(1), node=bench.here))
        log = self._log(bench, first, later)
        assert lines(0, log.count(b"\n")) == log

    def test_a_byte_that_changes_on_the_way_is_found(
        self, nodes: StreamedBench, bench: Bench, parked: StartOrder
    ) -> None:
        """What is damaged is sent once more, and only that; the job notices nothing."""
        nodes.line.faults = [flip]

        bench.engine.place(parked)

        whole, again = nodes.line.sent
        assert 0 < again < whole
        self._goes_on(bench, parked)

    def test_a_stream_that_breaks_is_continued(
        self, nodes: StreamedBench, bench: Bench, parked: StartOrder
    ) -> None:
        """What has come whole is not sent again."""
        nodes.line.faults = [cut]

        bench.engine.place(parked)

        _, again = nodes.line.sent
        assert 0 < again < 60 << 20
        self._goes_on(bench, parked)

    def test_what_is_damaged_at_its_source_never_runs(
        self, nodes: StreamedBench, bench: Bench, parked: StartOrder
    ) -> None:
        """Every byte is checked at the arrival, and nothing of it appears."""
        folder = nodes.folder(parked.ref.job, bench.here) / "1"
        bench.await_((folder / "digests.json").exists)
        largest = max((folder / "images").iterdir(), key=lambda path: path.stat().st_size)
        content = bytearray(largest.read_bytes())
        content[len(content) // 2] ^= 1
        largest.write_bytes(content)

        with pytest.raises(NotResumableError, match="not arrived as they were sent"):
            bench.engine.place(parked)

        assert not (nodes.folder(parked.ref.job, bench.there) / "1").exists()

    def test_a_checkpoint_on_a_silent_node_is_waited_for(
        self, nodes: StreamedBench, bench: Bench, parked: StartOrder
    ) -> None:
        """The reason names the node; once it answers the job goes on from there."""
        bench.cut(bench.here)
        try:
            with pytest.raises(CheckpointAwayError, match="lies on n1, which does not answer"):
                bench.engine.place(parked)
        finally:
            bench.mend(bench.here)
        assert () == bench.engine.survey(bench.there)

        bench.engine.place(replace(parked, seen=nodes.clock.now()))

        self._goes_on(bench, parked)

    def test_the_source_is_swept_once_the_copy_is_proven(
        self, nodes: StreamedBench, bench: Bench, parked: StartOrder
    ) -> None:
        """Until then both have it; a node that is silent just then is swept when it answers."""
        job, generation = parked.ref.job, parked.generation
        assert generation is not None
        bench.engine.place(parked)
        assert (bench.here, bench.there) == bench.engine.where(job)[generation]

        bench.cut(bench.here)
        bench.engine.forget(job, keep=generation)
        bench.mend(bench.here)
        assert (bench.there,) == bench.engine.where(job)[generation]
        assert (nodes.folder(job, bench.here) / "1" / "manifest.json").exists()
        bench.engine.survey(bench.here)
        assert not nodes.folder(job, bench.here).exists()
        assert [Generation(1)] == [c.generation for c in bench.engine.checkpoints(job)]

        bench.engine.forget(job)
        assert not nodes.folder(job, bench.there).exists()
        assert {} == bench.engine.where(job)

    def test_a_kept_checkpoint_may_lie_on_a_second_node(
        self, nodes: StreamedBench, bench: Bench
    ) -> None:
        """Then a node that is lost keeps nobody waiting, and what is old goes from both."""
        carrier = Carrier(nodes.access, "none", nodes.line, nodes.clock)
        store = StreamedStore(nodes.access, nodes.ledger, carrier, copies=2)
        engine = DockerEngine(nodes.access, nodes.site, nodes.keys, store, nodes.clock)
        order = bench.order(Act.COUNT, bench.here)
        placed = engine.place(order)
        bench.await_(lambda: printed_by(bench, order) > 0)
        old, kept = (engine.save(order.ref, deadline_seconds=60).checkpoint for _ in range(2))
        both = (bench.there, bench.here)
        assert {1: both, 2: both} == engine.where(order.ref.job)
        engine.forget(order.ref.job, keep=kept.generation)
        assert {2: both} == engine.where(order.ref.job)
        log = b"".join(engine.logs(order.ref, until=kept.time))
        engine.kill(order.ref)

        bench.cut(bench.here)
        try:
            later = next_order(order, bench.there, placed.image_digest, kept.generation)
            engine.place(replace(later, after_crash=AfterCrash.HOLD))
            engine.forget(order.ref.job, keep=kept.generation)
        finally:
            bench.mend(bench.here)

        bench.await_(lambda: printed_by(bench, later) > 2)
        assert {2: (bench.there,)} == engine.where(order.ref.job)
        engine.survey(bench.here)
        assert not nodes.folder(order.ref.job, bench.here).exists()
        assert old.generation < engine.save(later.ref, deadline_seconds=60).checkpoint.generation
        engine.kill(later.ref)
        log += self._log(bench, later)
        assert lines(0, log.count(b"\n")) == log


class PackedBench(StreamedBench):
    """The same, and streams are packed as well as the nodes can."""

    packing = "zstd"


@pytest.mark.parametrize("release", RELEASES)
def test_streams_are_packed_as_engines_unpack_them(release: str) -> None:
    """What the target's engine understands is sent, less than there is, and it is the same."""
    with PackedBench.started(release) as bench:
        order = bench.order(Act.COUNT, bench.here)
        command = f"head -c 40000000 /dev/zero | tr '\\0' x > /x; {COMMANDS[Act.COUNT][-1]}"
        spec = replace(order.spec, command=("sh", "-c", command), memory_mib=128)
        order = replace(order, spec=spec)
        placed = bench.engine.place(order)
        bench.await_(lambda: printed_by(bench, order) > 0)
        saved = bench.engine.checkpoint(order.ref, deadline_seconds=60).checkpoint
        later = next_order(order, bench.there, placed.image_digest, saved.generation)
        bench.engine.place(replace(later, seen=bench.clock.now()))
        bench.await_(lambda: printed_by(bench, later) > 2)
        bench.engine.kill(later.ref)
        log = b"".join(b"".join(bench.engine.logs(o.ref)) for o in (order, later))
        bench.clean()

    assert lines(0, log.count(b"\n")) == log
    assert saved.size_bytes > 40_000_000
    assert bench.line.sent[0] < saved.size_bytes / 10
