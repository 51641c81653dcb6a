"""A look of which a part is missing, on purpose or not.

The second command of a look asks for the jobs, or once in a while for reservations instead:
the jobs that were listed last stand in for that look.  Where it gets no answer the look is
partial: what the nodes say of priority jobs is as true as ever, and they are vacated for it.
That a node is idle needs both answers.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Generic, TypeVar

from daemon.core.types import Cluster, Node, NodeName, NodeState

#: For how long the last list of jobs stands in for one that was not asked for.
_JOBS_STAND = timedelta(seconds=120)

Job = TypeVar("Job")


class LastJobs(Generic[Job]):
    """The newest list of jobs that is known."""

    def __init__(self) -> None:
        self.listed: tuple[Job, ...] = ()
        #: When they were asked for; None when they were not in the last look.
        self._asked: datetime | None = None

    def stand_in(self, taken: datetime) -> bool:
        """Tell whether they can do for this look; never for two in a row.  Ask once a look."""
        asked, self._asked = self._asked, None
        return asked is not None and taken - asked <= _JOBS_STAND

    def learn(self, jobs: tuple[Job, ...], taken: datetime) -> None:
        """Take the list that was asked for in this look."""
        self.listed, self._asked = jobs, taken


def pictured(nodes: Mapping[NodeName, Node], taken: datetime, missing: str) -> Cluster:
    """
    Return the picture of a look.

    Args:
        missing: what was not learnt, and why; no node is idle then, for jobs that cannot be
            seen may hold it.
    """
    return Cluster(nodes=_doubted(nodes) if missing else nodes, taken=taken, partial=missing)


def _doubted(nodes: Mapping[NodeName, Node]) -> Mapping[NodeName, Node]:
    return MappingProxyType(
        {
            name: replace(node, state=NodeState.UNKNOWN, words=f"{node.words}, jobs not known")
            if node.state is NodeState.IDLE
            else node
            for name, node in nodes.items()
        }
    )
