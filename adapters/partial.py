"""A look of which a part is missing: the nodes have answered, the question about jobs has not been.

What the nodes say of priority jobs is as true as ever, and they are vacated for it.  That
a node is idle needs both answers.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from daemon.core.types import Node, NodeName, NodeState


def doubted(nodes: Mapping[NodeName, Node]) -> Mapping[NodeName, Node]:
    """Return the nodes without an idle one: jobs that cannot be seen may hold them."""
    return MappingProxyType(
        {
            name: replace(node, state=NodeState.UNKNOWN, words=f"{node.words}, jobs not known")
            if node.state is NodeState.IDLE
            else node
            for name, node in nodes.items()
        }
    )
