"""An engine in memory that keeps every promise of the real one, and breaks what a test asks for.

Jobs are ``Program`` values that progress with the clock they are given.  Nothing
here is used by the daemon itself.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime

from daemon.clock import Clock
from daemon.core.types import (
    AfterCrash,
    Checkpoint,
    CheckpointKind,
    Generation,
    JobId,
    NodeName,
    SegmentRef,
    SegmentView,
)
from migration.base import (
    Census,
    CgroupCensus,
    ChangedFilesError,
    CheckpointAwayError,
    EngineError,
    EngineUnreachableError,
    Kept,
    NodeUnfitError,
    NotResumableError,
    NotSavedError,
    OrderRefusedError,
    Placed,
    Saved,
    StartOrder,
    StillAliveError,
)
from migration.breakable import Breakable
from migration.virtual import (
    Program,
    VirtualNode,
    VirtualSegment,
    container_name,
)

__all__ = ["FakeEngine", "Program"]

SIGTERM = 15


class FakeEngine(Breakable):
    """The containers of all nodes, in memory."""

    def __init__(
        self,
        clock: Clock,
        programs: Mapping[tuple[str, ...], Program] | None = None,
        *,
        images: frozenset[str] | None = None,
        sources: frozenset[str] | None = None,
    ) -> None:
        """Take what each command does, and what exists on the nodes; None is everything."""
        super().__init__(clock)
        self._programs = dict(programs or {})
        self._images = images
        self._sources = sources
        self._used: set[SegmentRef] = set()

    # The engine protocol.

    def survey(self, node: NodeName) -> tuple[SegmentView, ...]:
        with self._call("survey", node) as here:
            listed = [s for s in here.segments.values() if s.listed]
            return tuple(s.view() for s in sorted(listed, key=lambda s: (s.ref.job, s.ref.epoch)))

    def ready(self, node: NodeName) -> None:
        self.survey(node)

    def place(self, order: StartOrder) -> Placed:
        ref = order.ref
        with self._call("place", ref.node) as here:
            self.orders.append(order)
            if ref not in here.segments or not here.segments[ref].listed:
                here.segments[ref] = self._begin(order, here)
            image = here.segments[ref].image
            changed = () if order.after_crash is None else self._disk.meddled.get(ref.job, ())
            return Placed(
                container=container_name(ref), image_digest=image, seconds=0.0, changed=changed
            )

    def freeze(self, ref: SegmentRef) -> None:
        self._set_frozen("freeze", ref, frozen=True)

    def thaw(self, ref: SegmentRef) -> None:
        self._set_frozen("thaw", ref, frozen=False)

    def checkpoint(self, ref: SegmentRef, *, deadline_seconds: float) -> Saved:
        with self._call("checkpoint", ref.node) as here:
            checkpoint = self._settled(ref)
            if checkpoint is None:
                segment = self._dumpable(here, ref)
                checkpoint = self._commit(segment, CheckpointKind.EVICTION)
                segment.exit_code = 137
            return Saved(
                checkpoint=checkpoint, freeze_seconds=0.0, vacate_seconds=checkpoint.seconds
            )

    def save(
        self,
        ref: SegmentRef,
        *,
        deadline_seconds: float,
        kind: CheckpointKind = CheckpointKind.PERIODIC,
    ) -> Kept:
        with self._call("save", ref.node) as here:
            checkpoint = self._commit(self._dumpable(here, ref), kind)
            return Kept(checkpoint=checkpoint, freeze_seconds=checkpoint.seconds)

    def settled(self, ref: SegmentRef) -> Checkpoint | None:
        with self._stored():
            self._check_disk_of(ref.node)
            return self._settled(ref)

    def checkpoints(self, job: JobId) -> tuple[Checkpoint, ...]:
        with self._stored() as disk:
            self._check_disk_of(disk.holders.get(job))
            return disk.all_of(job)

    def signal(self, ref: SegmentRef, signal: int) -> None:
        with self._call("signal", ref.node) as here:
            segment = here.segments.get(ref)
            if segment and segment.alive and signal == SIGTERM:
                segment.exit_code = segment.program.on_term

    def kill(self, ref: SegmentRef) -> None:
        with self._call("kill", ref.node) as here:
            if ref in self._survivors:
                raise StillAliveError(f"a process of {container_name(ref)} survived")
            segment = here.segments.get(ref)
            if segment and segment.alive:
                segment.exit_code = 137

    def logs(
        self, ref: SegmentRef, *, follow: bool = False, until: datetime | None = None
    ) -> Iterator[bytes]:
        sent, last = 0, None
        if until is not None:
            ago = (self._clock.now() - until).total_seconds()
            last = self._clock.monotonic() - ago
        while True:
            with self._call("logs", ref.node) as here:
                segment = here.segments.get(ref)
                if segment is None and until is not None:
                    raise EngineError(f"there is no container {container_name(ref)}")
                text = segment.printed(last) if segment else b""
                over = segment is None or not segment.alive or not follow
                pause = segment.program.line_seconds if segment else 0.0
            if text[sent:]:
                yield text[sent:]
                sent = len(text)
            if over:
                return
            self._clock.wait(pause)

    def remove(self, ref: SegmentRef) -> None:
        with self._call("remove", ref.node) as here:
            here.segments.pop(ref, None)

    def census(self, node: NodeName) -> Census:
        with self._call("census", node) as here:
            found = tuple(
                CgroupCensus(ref=s.ref, processes=1, frozen=s.frozen)
                for s in here.segments.values()
                if s.alive
            )
            return Census(boot_id=f"{node}-boot-{here.boot}", segments=found)

    def forget(self, job: JobId, *, keep: Generation | None = None) -> None:
        with self._stored() as disk:
            disk.forget(job, keep)

    def where(self, job: JobId) -> Mapping[Generation, tuple[NodeName, ...]]:
        with self._lock:
            saved = self._disk.saved.get(job, {}) if self.own_disks else {}
            return dict.fromkeys(saved, (self._disk.holders[job],)) if saved else {}

    # Below: how it is done.

    def _begin(self, order: StartOrder, here: VirtualNode) -> VirtualSegment:
        ref, spec = order.ref, order.spec
        if self._images is not None and spec.image not in self._images:
            raise OrderRefusedError(f"there is no image {spec.image}")
        for mount in spec.mounts:
            if self._sources is not None and mount.source not in self._sources:
                raise OrderRefusedError(f"the mount's source {mount.source} does not exist")
        if ref in self._used:
            raise NodeUnfitError(f"the ticket of {container_name(ref)} was used before")
        if here.mark is not None and order.seen <= here.mark:
            raise NodeUnfitError(f"a prolog has claimed {ref.node}")
        done, file = self._restored(order)
        self._used.add(ref)
        program = self._programs.get(spec.command, Program())
        now = self._clock.monotonic()
        image = order.image_digest or f"sha256:{spec.image}"
        segment = VirtualSegment(
            ref=ref, program=program, begun=done, done=done, since=now, image=image, file=file
        )
        self._disk.writers[ref.job] = segment
        if program.peak_memory_mib > spec.memory_mib:
            segment.exit_code, segment.oom_killed = 137, True
        return segment

    def _restored(self, order: StartOrder) -> tuple[float, bytes]:
        """Return how far the program is, and what its file holds, when it begins."""
        job, generation = order.ref.job, order.generation
        file = self._disk.written(job)
        if generation is None:
            return 0.0, file
        saved = self._disk.saved.get(job, {}).get(generation)
        if saved is None or (job, generation) in self._disk.spoiled:
            raise NotResumableError(f"generation {generation} of job {job} is not valid")
        if self.own_disks:
            self._bring(order)
        changed = self._disk.meddled.get(job, ())
        if order.after_crash is AfterCrash.HOLD and changed:
            words = f"files of job {job} have changed since generation {generation}"
            raise ChangedFilesError(words, files=changed)
        return saved.done, file if order.after_crash is None else file[: saved.length]

    def _check_disk_of(self, node: NodeName | None) -> None:
        if self.own_disks and node is not None and not self._node(node).reachable:
            raise EngineUnreachableError(f"the checkpoints of {node} are out of reach")

    def _bring(self, order: StartOrder) -> None:
        holder = self._disk.holders[order.ref.job]
        if not self._node(holder).reachable:
            words = f"its checkpoint lies on {holder}, which does not answer"
            raise CheckpointAwayError(words)
        self._disk.holders[order.ref.job] = order.ref.node

    def _dumpable(self, here: VirtualNode, ref: SegmentRef) -> VirtualSegment:
        segment = here.segments.get(ref)
        if segment is None or not segment.alive:
            raise NotSavedError("the job has ended", frozen=False)
        if not segment.program.dumpable:
            raise NotSavedError(segment.program.obstacle, frozen=segment.frozen)
        return segment

    def _set_frozen(self, verb: str, ref: SegmentRef, *, frozen: bool) -> None:
        with self._call(verb, ref.node) as here:
            segment = here.segments.get(ref)
            if segment and segment.alive:
                segment.set_frozen(frozen=frozen)

    def _settled(self, ref: SegmentRef) -> Checkpoint | None:
        ends = (c for c in self._disk.all_of(ref.job) if c.kind is CheckpointKind.EVICTION)
        return next((c for c in ends if c.epoch == ref.epoch), None)

    def _commit(self, segment: VirtualSegment, kind: CheckpointKind) -> Checkpoint:
        job = segment.ref.job
        checkpoint = Checkpoint(
            job=job,
            generation=Generation(max(self._disk.saved.get(job, {}), default=0) + 1),
            epoch=segment.ref.epoch,
            time=self._clock.now(),
            size_bytes=segment.program.size_bytes,
            seconds=segment.program.dump_seconds,
            kind=kind,
        )
        self._disk.keep(checkpoint, segment)
        return checkpoint
