"""What the store tells beside jobs: history, intents, evictions, nodes.  Values, not rows."""

from dataclasses import dataclass
from datetime import datetime
from typing import NewType

from daemon.core.types import Epoch, JobId, Machine, NodeName, SegmentRef

#: Stands for the nodes that nobody has heard of yet; no node of a batch system is called so.
EVERY_NODE = NodeName("*")

IntentId = NewType("IntentId", int)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLine:
    """One line of a job's history."""

    time: datetime
    event: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """An action that was begun."""

    id: IntentId
    job: JobId
    action: str
    node: NodeName | None
    epoch: Epoch | None
    begun: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionRecord:
    """How fast one job got out of the way."""

    ref: SegmentRef
    time: datetime
    #: From the look that saw the claim to the frozen job.
    freeze_seconds: float
    #: From the decision to the empty cgroup.
    vacate_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """What we remember of a node."""

    name: NodeName
    drained: datetime | None = None
    probe_digest: str = ""
    probe_ok: bool = False
    probe_why: str = ""
    probed: datetime | None = None
    other_users: bool = True
    machine: Machine | None = None
    #: When an administrator called panic on it.
    panicked: datetime | None = None
    #: When an administrator said that it is dead.
    gone: datetime | None = None
