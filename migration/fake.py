"""An engine in memory that keeps every promise of the real one, and breaks what a test asks for.

Jobs are ``Program`` values that progress with the clock they are given.  Nothing
here is used by the daemon itself.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from daemon.clock import Clock
from daemon.core.types import (
    Checkpoint,
    Generation,
    JobId,
    NodeName,
    SegmentRef,
    SegmentView,
)
from migration.base import (
    Census,
    CgroupCensus,
    EngineError,
    EngineUnreachableError,
    NodeUnfitError,
    NotResumableError,
    NotSavedError,
    OrderRefusedError,
    Placed,
    Saved,
    StartOrder,
    StillAliveError,
)
from migration.virtual import Program, VirtualNode, VirtualSegment, container_name

__all__ = ["FakeEngine", "Program"]

SIGTERM = 15


@dataclass(slots=True, kw_only=True)
class _Fault:
    verb: str
    node: NodeName | None
    error: EngineError
    #: The call takes effect before its error is raised: the answer was lost.
    late: bool


class FakeEngine:
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
        self._clock = clock
        self._programs = dict(programs or {})
        self._images = images
        self._sources = sources
        self._lock = threading.RLock()
        self._nodes: dict[NodeName, VirtualNode] = {}
        self._saved: dict[JobId, dict[Generation, tuple[Checkpoint, float]]] = {}
        self._used: set[SegmentRef] = set()
        self._spoiled: set[tuple[JobId, Generation]] = set()
        self._survivors: set[SegmentRef] = set()
        self._faults: list[_Fault] = []
        #: Called with verb and node before each call, outside all locks; may block or raise.
        self.before: Callable[[str, NodeName], None] | None = None

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
            if ref not in here.segments or not here.segments[ref].listed:
                here.segments[ref] = self._begin(order, here)
            image = here.segments[ref].image
            return Placed(container=container_name(ref), image_digest=image, seconds=0.0)

    def freeze(self, ref: SegmentRef) -> None:
        self._set_frozen("freeze", ref, frozen=True)

    def thaw(self, ref: SegmentRef) -> None:
        self._set_frozen("thaw", ref, frozen=False)

    def checkpoint(self, ref: SegmentRef, *, deadline_seconds: float) -> Saved:
        with self._call("checkpoint", ref.node) as here:
            segment = here.segments.get(ref)
            checkpoint = self._settled(ref)
            if checkpoint is None:
                if segment is None or not segment.alive:
                    raise NotSavedError("the job has ended", frozen=False)
                if not segment.program.dumpable:
                    raise NotSavedError("criu: it cannot be dumped", frozen=segment.frozen)
                checkpoint = self._commit(segment)
                segment.exit_code = 137
            return Saved(
                checkpoint=checkpoint, freeze_seconds=0.0, vacate_seconds=checkpoint.seconds
            )

    def settled(self, ref: SegmentRef) -> Checkpoint | None:
        with self._lock:
            return self._settled(ref)

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

    def logs(self, ref: SegmentRef, *, follow: bool = False) -> Iterator[bytes]:
        sent = 0
        while True:
            with self._call("logs", ref.node) as here:
                segment = here.segments.get(ref)
                text = segment.printed() if segment else b""
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
        with self._lock:
            self._saved[job] = {
                g: s for g, s in self._saved.get(job, {}).items() if keep is not None and g >= keep
            }

    # What a test may do to the nodes.

    def cut(self, node: NodeName) -> None:
        """Let the node's engine answer nothing from now on; its jobs go on."""
        self._node(node).reachable = False

    def mend(self, node: NodeName) -> None:
        """Let it answer again."""
        self._node(node).reachable = True

    def reboot(self, node: NodeName) -> None:
        """End every process of the node, as a power cut does, and start it again."""
        with self._lock:
            here = self._advanced(node)
            here.boot += 1
            self._survivors -= here.segments.keys()
            for segment in here.segments.values():
                segment.exit_code = 137 if segment.alive else segment.exit_code

    def run_prolog(self, node: NodeName) -> None:
        """Freeze the node's jobs and refuse orders that were decided before now."""
        with self._lock:
            here = self._advanced(node)
            here.mark = self._clock.now()
            for segment in here.segments.values():
                segment.frozen = segment.alive

    def fail(
        self, verb: str, error: EngineError, *, node: NodeName | None = None, late: bool = False
    ) -> None:
        """Let the next call of that name raise, ``late`` after it has taken effect."""
        self._faults.append(_Fault(verb=verb, node=node, error=error, late=late))

    def orphan(self, ref: SegmentRef) -> None:
        """Let Docker forget a container whose process lives on."""
        self._node(ref.node).segments[ref].listed = False

    def harden(self, ref: SegmentRef) -> None:
        """Let a process of the segment survive every kill until the node's reboot."""
        self._survivors.add(ref)

    def spoil(self, job: JobId, generation: Generation) -> None:
        """Make a saved generation unreadable."""
        self._spoiled.add((job, generation))

    def living(self, job: JobId) -> tuple[SegmentRef, ...]:
        """Return where processes of the job live; more than one is the worst of faults."""
        with self._lock:
            found = [s for n in self._nodes for s in self._advanced(n).segments.values()]
            return tuple(s.ref for s in found if s.alive and s.ref.job == job)

    def generations(self, job: JobId) -> tuple[Generation, ...]:
        """Return what is stored for the job."""
        return tuple(sorted(self._saved.get(job, {})))

    # Below: how it is done.

    def _node(self, node: NodeName) -> VirtualNode:
        return self._nodes.setdefault(node, VirtualNode())

    def _advanced(self, node: NodeName) -> VirtualNode:
        here = self._node(node)
        now = self._clock.monotonic()
        for segment in here.segments.values():
            segment.advance(now)
        return here

    @contextmanager
    def _call(self, verb: str, node: NodeName) -> Iterator[VirtualNode]:
        if self.before is not None:
            self.before(verb, node)
        with self._lock:
            if not self._node(node).reachable:
                raise EngineUnreachableError(f"the engine of {node} does not answer")
            fault = next(
                (f for f in self._faults if f.verb == verb and f.node in {None, node}), None
            )
            if fault:
                self._faults.remove(fault)
            if fault and not fault.late:
                raise fault.error
            yield self._advanced(node)
            if fault:
                raise fault.error

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
        done = self._restored(ref.job, order.generation)
        self._used.add(ref)
        program = self._programs.get(spec.command, Program())
        now = self._clock.monotonic()
        image = order.image_digest or f"sha256:{spec.image}"
        segment = VirtualSegment(
            ref=ref, program=program, begun=done, done=done, since=now, image=image
        )
        if program.peak_memory_mib > spec.memory_mib:
            segment.exit_code, segment.oom_killed = 137, True
        return segment

    def _restored(self, job: JobId, generation: Generation | None) -> float:
        if generation is None:
            return 0.0
        saved = self._saved.get(job, {}).get(generation)
        if saved is None or (job, generation) in self._spoiled:
            raise NotResumableError(f"generation {generation} of job {job} is not valid")
        return saved[1]

    def _set_frozen(self, verb: str, ref: SegmentRef, *, frozen: bool) -> None:
        with self._call(verb, ref.node) as here:
            segment = here.segments.get(ref)
            if segment and segment.alive:
                segment.frozen = frozen

    def _settled(self, ref: SegmentRef) -> Checkpoint | None:
        mine = [c for c, _ in self._saved.get(ref.job, {}).values() if c.epoch == ref.epoch]
        return max(mine, key=lambda c: c.generation, default=None)

    def _commit(self, segment: VirtualSegment) -> Checkpoint:
        job = segment.ref.job
        saved = self._saved.setdefault(job, {})
        checkpoint = Checkpoint(
            job=job,
            generation=Generation(max(saved, default=0) + 1),
            epoch=segment.ref.epoch,
            time=self._clock.now(),
            size_bytes=segment.program.size_bytes,
            seconds=segment.program.dump_seconds,
        )
        saved[checkpoint.generation] = (checkpoint, segment.done)
        return checkpoint
