"""Which of the batch system's nodes are ours to use."""

from collections.abc import Callable

import hostlist

from daemon.config import NodesSection
from daemon.core.types import NodeName


def selector(nodes: NodesSection) -> Callable[[NodeName, tuple[str, ...]], bool]:
    """Return a question that is true for the nodes which the site lets us use."""
    included = _expanded(nodes.include)
    excluded = _expanded(nodes.exclude)
    partitions = frozenset(nodes.partitions)

    def ours(name: NodeName, its_partitions: tuple[str, ...]) -> bool:
        if name in excluded or (included and name not in included):
            return False
        return not partitions or not partitions.isdisjoint(its_partitions)

    return ours


def _expanded(patterns: tuple[str, ...]) -> frozenset[str]:
    return frozenset(name for pattern in patterns for name in hostlist.expand_hostlist(pattern))
