"""Claims that do not come through the batch system: prolog hooks, administrators."""

import threading
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta

from daemon.core.types import Claim, ClaimSource, Cluster, NodeName

#: A batch system needs a moment until its own answer shows what a prolog was called for.
_SURELY_NEWER = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class _Notice:
    claim: Claim
    until: datetime


class Notices:
    """The newest such claim of each source on each node."""

    def __init__(self, *, linger: timedelta, lock: threading.RLock) -> None:
        self._linger = linger
        self._lock = lock
        self._notices: dict[tuple[NodeName, ClaimSource], _Notice] = {}

    def take(self, claim: Claim) -> None:
        """Remember a claim."""
        with self._lock:
            until = (claim.deadline or claim.at) + self._linger
            self._notices[claim.node, claim.source] = _Notice(claim, until)

    def claims(self, node: NodeName) -> bool:
        """Tell whether there is such a claim on the node."""
        return any(claimed == node for claimed, _ in self._notices)

    def standing(
        self, *, held: AbstractSet[NodeName], cluster: Cluster | None, now: datetime
    ) -> tuple[Claim, ...]:
        """
        Return the claims that stand; those that have done their work are dropped.

        A claim stands while jobs are on its node.  Then that of a prolog gives way to the
        batch system's own word, as soon as there is one that is surely newer; any other, and
        one without such a word, lingers.
        """
        self._notices = {
            key: notice
            for key, notice in self._notices.items()
            if notice.claim.node in held
            or not (_taken_over(notice.claim, cluster) or now > notice.until)
        }
        return tuple(notice.claim for _, notice in sorted(self._notices.items()))


def _taken_over(claim: Claim, cluster: Cluster | None) -> bool:
    """A prolog runs after its job got the node, so a newer answer shows that job, or its end."""
    return (
        claim.source is ClaimSource.PROLOG
        and cluster is not None
        and cluster.taken > claim.at + _SURELY_NEWER
        and claim.node in cluster.nodes
    )
