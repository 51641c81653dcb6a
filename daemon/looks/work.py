"""Who is at work on what, and which answers are older than what was done.

An engine that was asked before an action was over says nothing about its outcome.  So
questions and ends of actions are numbered in one row: the order counts, not the time.
"""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from daemon.core.types import JobId, NodeName, SegmentRef

#: Later than every turn.
_FOR_NOW = 1 << 62


class Work:
    """Counts what is under way."""

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._turn = 0
        self._jobs: dict[JobId, int] = {}
        self._nodes: dict[NodeName, int] = {}
        #: Of the jobs, those that are being saved and are to go on.
        self._saving: set[JobId] = set()
        #: Of the jobs, those that are being placed, and where.
        self._coming: dict[JobId, NodeName] = {}
        #: When the last action on a job was over.
        self._touched: dict[JobId, int] = {}
        #: When a container had been removed.
        self._leaving: dict[SegmentRef, int] = {}
        #: When each node's newest answer was asked for.
        self._looked: dict[NodeName, int] = {}

    def turn(self) -> int:
        """Return the next number of the row."""
        with self._lock:
            self._turn += 1
            return self._turn

    def looked(self, node: NodeName, turn: int) -> None:
        """Note that the newest answer of a node was asked for at that turn."""
        with self._lock:
            self._looked[node] = turn

    def begin(
        self,
        jobs: Iterable[JobId],
        node: NodeName | None,
        *,
        saving: bool = False,
        coming: NodeName | None = None,
    ) -> None:
        """
        Note that an action is under way; ``node`` when it needs the node for itself.

        ``coming`` is the node on which it places the jobs.
        """
        with self._lock:
            for job in jobs:
                self._jobs[job] = self._jobs.get(job, 0) + 1
                if saving:
                    self._saving.add(job)
                if coming is not None:
                    self._coming[job] = coming
            if node is not None:
                self._nodes[node] = self._nodes.get(node, 0) + 1

    def end(self, jobs: Iterable[JobId], node: NodeName | None, *, saving: bool = False) -> None:
        """Note that it is over."""
        with self._lock:
            for job in jobs:
                self._touched[job] = self.turn()
                self._coming.pop(job, None)
                if saving:
                    self._saving.discard(job)
                self._jobs[job] = self._jobs.get(job, 1) - 1
                if self._jobs[job] <= 0:
                    del self._jobs[job]
            if node is not None:
                self._nodes[node] = self._nodes.get(node, 1) - 1
                if self._nodes[node] <= 0:
                    del self._nodes[node]

    @contextmanager
    def removing(self, ref: SegmentRef) -> Iterator[None]:
        """Note that a segment's container is on its way out, until a later look is over."""
        with self._lock:
            self._leaving[ref] = _FOR_NOW
        try:
            yield
        finally:
            with self._lock:
                self._leaving[ref] = self.turn()

    def jobs(self, placed: Iterable[SegmentRef]) -> frozenset[JobId]:
        """Return the jobs to leave alone: at work, or not looked at since the last action."""
        where = {ref.job: ref.node for ref in placed}
        self._touched = {job: turn for job, turn in self._touched.items() if job in where}
        unseen = {
            job for job, turn in self._touched.items() if turn > self._looked.get(where[job], 0)
        }
        return frozenset(self._jobs) | frozenset(unseen)

    def saving(self) -> frozenset[JobId]:
        """Return the jobs that are being saved, are to go on, and are left alone otherwise."""
        return frozenset(job for job in self._saving if self._jobs[job] == 1)

    def coming(self) -> dict[JobId, NodeName]:
        """Return the jobs that are being placed, and where."""
        return dict(self._coming)

    def nodes(self) -> frozenset[NodeName]:
        """Return the nodes that an action needs for itself."""
        return frozenset(self._nodes)

    def leaving(self) -> frozenset[SegmentRef]:
        """Return the segments whose containers may still be seen but are gone, or nearly so."""
        self._leaving = {
            ref: turn for ref, turn in self._leaving.items() if turn > self._looked.get(ref.node, 0)
        }
        return frozenset(self._leaving)

    def any(self) -> bool:
        """Tell whether anything is under way."""
        return bool(self._jobs or self._nodes or _FOR_NOW in self._leaving.values())
