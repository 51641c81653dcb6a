"""What is remembered of nodes: what administrators said of them, and what their canaries found."""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from daemon.core.types import NodeName
from daemon.store import EVERY_NODE, NodeRecord, Store


class Remembered:
    """The records of all nodes; what was changed is in the store when the call returns."""

    def __init__(self, store: Store, lock: threading.RLock) -> None:
        self._store = store
        self._lock = lock
        self._records: dict[NodeName, NodeRecord] = {}

    def open(self) -> None:
        """Read them."""
        self._records = self._store.nodes()

    def of(self, node: NodeName) -> NodeRecord:
        """Return what is remembered of the node."""
        with self._lock:
            return self._records.get(node) or NodeRecord(name=node)

    def keep(self, *records: NodeRecord) -> None:
        """Remember these instead, all or none."""
        self._store.save_nodes(records)
        with self._lock:
            self._records |= {record.name: record for record in records}

    def panic(self, nodes: Iterable[NodeName], *, every: bool, now: datetime) -> None:
        """Remember that these nodes are not ours; ``every`` holds for those not known yet too."""
        with self._lock:
            called = [self.of(node) for node in nodes] + ([self.of(EVERY_NODE)] if every else [])
            self.keep(*(replace(r, panicked=now) for r in called if r.panicked is None))

    def calm(self, nodes: frozenset[NodeName], *, known: Iterable[NodeName]) -> None:
        """
        Remember that the panic is over on these nodes.

        Where it was called for every node it goes on on the others that are known by now.
        """
        with self._lock:
            others = self.panics(known).items()
            left = [replace(self.of(n), panicked=moment) for n, moment in others if n not in nodes]
            over = [self.of(node) for node in (*sorted(nodes), EVERY_NODE)]
            over = [replace(r, panicked=None) for r in over if r.panicked is not None]
            self.keep(*left, *over)

    def panicked(self, node: NodeName) -> datetime | None:
        """Return when panic was called on the node; None if it was not, or is over."""
        with self._lock:
            return self.of(node).panicked or self.of(EVERY_NODE).panicked

    def panics(self, nodes: Iterable[NodeName]) -> dict[NodeName, datetime]:
        """Return when panic was called where it was: on these nodes, and on any by its name."""
        with self._lock:
            every = self.of(EVERY_NODE).panicked
            found = {} if every is None else dict.fromkeys(nodes, every)
            known = self._records.values()
            own = {r.name: r.panicked for r in known if r.panicked is not None}
            return {node: moment for node, moment in (found | own).items() if node != EVERY_NODE}

    def drained(self) -> Mapping[NodeName, datetime]:
        """Return when nodes were closed."""
        with self._lock:
            return {r.name: r.drained for r in self._records.values() if r.drained is not None}

    def gone(self) -> frozenset[NodeName]:
        """Return the nodes that are dead by an administrator's word."""
        with self._lock:
            return frozenset(r.name for r in self._records.values() if r.gone is not None)
