"""Asking the batch system, in a thread of its own."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime

import structlog

from adapters.base import AdapterError, BatchAdapter
from daemon.core.types import Cluster, NodeName, NodeState

_log = structlog.get_logger(__name__)

_NOT_YET = "has not been asked yet"

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
        wake: Callable[[], None],
        lock: threading.RLock,
    ) -> None:
        self._adapter = adapter
        self._ours = ours
        self._wanted_looks = idle_looks
        self._wake = wake
        self._lock = lock
        self._pool: ThreadPoolExecutor | None = None
        self._asked = False
        self._idle_looks: dict[NodeName, int] = {}
        self._since: dict[NodeName, datetime] = {}
        self.cluster: Cluster | None = None
        #: Why the batch system's word is missing; empty when its last answer was good.
        self.trouble = _NOT_YET

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
        """Ask, unless a question is under way."""
        with self._lock:
            if not self._asked and self._pool is not None:
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

    def _look(self) -> None:
        try:
            cluster = self._adapter.look()
        except AdapterError as exc:
            if self.trouble != str(exc):
                _log.warning("batch.silent", batch=self._adapter.name, reason=str(exc))
            self.trouble = str(exc)
        except Exception as exc:  # noqa: BLE001  our own fault must read as silence too
            _log.exception("batch.fault")
            self.trouble = repr(exc)
        else:
            if self.trouble:
                _log.info("batch.answered", batch=self._adapter.name, nodes=len(cluster.nodes))
            self.trouble = ""
            self._take(cluster)
        finally:
            with self._lock:
                self._asked = False
        self._wake()

    def _take(self, cluster: Cluster) -> None:
        ours = {n: node for n, node in cluster.nodes.items() if self._ours(n, node.partitions)}
        with self._lock:
            self.cluster = replace(cluster, nodes=ours)
            for name in {*ours, *self._idle_looks}:
                if name in ours and ours[name].state is NodeState.IDLE:
                    self._idle_looks[name] = self._idle_looks.get(name, 0) + 1
                    self._since.pop(name, None)
                else:
                    self._idle_looks[name] = 0
                    self._since.setdefault(name, cluster.taken)
