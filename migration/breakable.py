"""The world of the fake engine, and what a test may do to it behind the engine's back."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from daemon.clock import Clock
from daemon.core.types import Generation, JobId, NodeName, SegmentRef
from migration.base import EngineError, EngineUnreachableError, StartOrder
from migration.virtual import VirtualDisk, VirtualNode


@dataclass(slots=True, kw_only=True)
class _Fault:
    verb: str
    node: NodeName | None
    error: EngineError
    #: The call takes effect before its error is raised: the answer was lost.
    late: bool


class Breakable:
    """Nodes in memory, that progress with their clock and fail as they are told."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._nodes: dict[NodeName, VirtualNode] = {}
        self._disk = VirtualDisk()
        self._survivors: set[SegmentRef] = set()
        self._faults: list[_Fault] = []
        #: The checkpoints are out of sight, as on a file system that is not mounted.
        self.hidden = False
        #: Each node has the checkpoints of its own jobs, and others get them from there.
        self.own_disks = False
        #: Every order that came through, oldest first.
        self.orders: list[StartOrder] = []
        #: Called with verb and node before each call, outside all locks; may block or raise.
        self.before: Callable[[str, NodeName], None] | None = None

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
        self._disk.spoiled.add((job, generation))

    def hold(self, job: JobId, node: NodeName) -> None:
        """Have the job's next checkpoint lie on this node, whichever made it."""
        self._disk.held_by[job] = node

    def meddle(self, job: JobId, *files: str) -> None:
        """Change files of the job in a way that cannot be put right, until its next checkpoint."""
        self._disk.meddled[job] = files

    def written(self, job: JobId) -> bytes:
        """Return what the job's file on the shared file system holds."""
        with self._lock:
            for node in self._nodes:
                self._advanced(node)
            return self._disk.written(job)

    def living(self, job: JobId) -> tuple[SegmentRef, ...]:
        """Return where processes of the job live; more than one is the worst of faults."""
        with self._lock:
            found = [s for n in self._nodes for s in self._advanced(n).segments.values()]
            return tuple(s.ref for s in found if s.alive and s.ref.job == job)

    def generations(self, job: JobId) -> tuple[Generation, ...]:
        """Return what is stored for the job."""
        return tuple(sorted(self._disk.saved.get(job, {})))

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
    def _stored(self) -> Iterator[VirtualDisk]:
        with self._lock:
            if self.hidden:
                raise EngineUnreachableError("the checkpoints are out of sight")
            yield self._disk

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
