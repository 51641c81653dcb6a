"""Asking the batch system, in a thread of its own."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta

import structlog

from adapters.base import AdapterError, BatchAdapter
from daemon.clock import Clock
from daemon.core.types import Cluster, GapHistory, NodeName, NodeState

_log = structlog.get_logger(__name__)

_NOT_YET = "has not been asked yet"
#: The share of its time that a slow batch system works for us, and how many polls it is
#: left alone at most.  One that answers within a second is not slow.
_DUTY = 0.05
_LONGEST_POLLS = 3
_QUICK_SECONDS = 1.0

#: Which of the batch system's nodes are ours to use.
Selection = Callable[[NodeName, tuple[str, ...]], bool]


class BatchLooks:
    """The newest complete answer, and for how long nodes have been as it says."""

    def __init__(
        self,
        adapter: BatchAdapter,
        *,
        ours: Selection,
        idle_looks: int,
        clock: Clock,
        poll: timedelta,
        wake: Callable[[], None],
        lock: threading.RLock,
    ) -> None:
        self._adapter = adapter
        self._clock = clock
        self._poll_seconds = poll.total_seconds()
        self._ours = ours
        self._wanted_looks = idle_looks
        self._wake = wake
        self._lock = lock
        self._pool: ThreadPoolExecutor | None = None
        self._asked = False
        #: By the monotonic clock: a slow batch system is left alone until then.
        self._not_before = 0.0
        self._slow = False
        self._idle_looks: dict[NodeName, int] = {}
        self._since: dict[NodeName, datetime] = {}
        #: Since when nodes have been idle, and what is known of gaps that have ended.
        self._idle_since: dict[NodeName, datetime] = {}
        self._gaps: dict[NodeName, GapHistory] = {}
        self.cluster: Cluster | None = None
        #: Why the batch system's word is missing; empty when its last answer was good.
        self.trouble = _NOT_YET
        #: How long the last question took; None before the first.
        self.seconds: float | None = None

    @property
    def asked_once(self) -> bool:
        """Whether the batch system has answered, or failed to, at least once."""
        return self.cluster is not None or self.trouble != _NOT_YET

    @property
    def asking(self) -> bool:
        """Whether a question is under way."""
        return self._asked

    def open(self) -> None:
        """Get ready to ask."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="batch")

    def close(self) -> None:
        """Ask nothing more; an answer under way is dropped."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def ask(self) -> None:
        """Ask, unless a question is under way, or the last one was slow a short while ago."""
        with self._lock:
            rests = self._clock.monotonic() < self._not_before
            if not self._asked and not rests and self._pool is not None:
                self._asked = True
                self._pool.submit(self._look)

    def settled(self) -> frozenset[NodeName]:
        """Return the nodes that were idle in as many looks in a row as the site wants."""
        return frozenset(n for n, looks in self._idle_looks.items() if looks >= self._wanted_looks)

    def is_idle(self, node: NodeName) -> bool:
        """Tell whether the newest answer calls the node idle."""
        known = self.cluster.nodes.get(node) if self.cluster is not None else None
        return known is not None and known.state is NodeState.IDLE

    def since(self) -> dict[NodeName, datetime]:
        """Return since when nodes have not been idle."""
        return dict(self._since)

    def gaps(self) -> dict[NodeName, GapHistory]:
        """Return what was seen of the gaps of nodes since the start of the daemon."""
        return dict(self._gaps)

    def _look(self) -> None:
        began = self._clock.monotonic()
        try:
            cluster = self._adapter.look()
        except AdapterError as exc:
            self._missed(str(exc))
        except Exception as exc:  # noqa: BLE001  our own fault must read as silence too
            _log.exception("batch.fault")
            self.trouble = repr(exc)
        else:
            if cluster.partial:
                self._missed(cluster.partial)
            elif self.trouble:
                _log.info("batch.answered", batch=self._adapter.name, nodes=len(cluster.nodes))
            self.trouble = cluster.partial
            self._take(cluster)
        finally:
            self._rest(self._clock.monotonic() - began)
            with self._lock:
                self._asked = False
        self._wake()

    def _missed(self, why: str) -> None:
        if self.trouble != why:
            _log.warning("batch.silent", batch=self._adapter.name, reason=why)
        self.trouble = why

    def _rest(self, seconds: float) -> None:
        """Leave a batch system alone that has worked for us for so long."""
        self.seconds = seconds
        pause = min(seconds * (1 / _DUTY - 1), _LONGEST_POLLS * self._poll_seconds)
        slow = seconds > _QUICK_SECONDS and pause > self._poll_seconds
        self._not_before = self._clock.monotonic() + pause if slow else 0.0
        if slow and not self._slow:
            _log.warning("batch.slow", batch=self._adapter.name, seconds=round(seconds, 1))
        self._slow = slow

    def _take(self, cluster: Cluster) -> None:
        ours = {n: node for n, node in cluster.nodes.items() if self._ours(n, node.partitions)}
        with self._lock:
            self.cluster = replace(cluster, nodes=ours)
            for name in {*ours, *self._idle_looks}:
                if name in ours and ours[name].state is NodeState.IDLE:
                    self._idle_looks[name] = self._idle_looks.get(name, 0) + 1
                    self._since.pop(name, None)
                    self._idle_since.setdefault(name, cluster.taken)
                else:
                    self._idle_looks[name] = 0
                    self._end_gap(name, cluster.taken)
                    self._since.setdefault(name, cluster.taken)

    def _end_gap(self, name: NodeName, now: datetime) -> None:
        began = self._idle_since.pop(name, None)
        if began is not None:
            known = self._gaps.get(name, GapHistory())
            idle = known.idle_seconds + (now - began).total_seconds()
            self._gaps[name] = GapHistory(idle_seconds=idle, ended=known.ended + 1)
