"""What a plan is made of: frozen values, each with its reason."""

from dataclasses import dataclass
from datetime import datetime

from daemon.core.types import (
    CheckpointKind,
    ClaimSource,
    Epoch,
    Generation,
    JobId,
    NodeName,
    Outcome,
    SegmentRef,
    SegmentView,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Start the job on the node, or resume it there."""

    job: JobId
    node: NodeName
    epoch: Epoch
    generation: Generation | None
    #: When the batch system said that the node is idle.
    seen: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacate:
    """Freeze the segments at once, checkpoint them side by side; after the deadline kill them."""

    node: NodeName
    refs: tuple[SegmentRef, ...]
    deadline: datetime
    #: When the claim was first seen.
    seen: datetime
    source: ClaimSource
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """Checkpoint a segment and let it go on."""

    ref: SegmentRef
    kind: CheckpointKind
    #: Its node might be claimed meanwhile: then it must be vacant in time all the same.
    deadline: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    """A segment has ended: find out how, keep its log, decide what that means for the job."""

    ref: SegmentRef
    view: SegmentView | None
    reason: str
    #: Its node is dead by an administrator's word: nobody is left to be asked.
    gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopt:
    """A segment was found running that we were not sure of."""

    ref: SegmentRef
    view: SegmentView
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Thaw:
    """Let a frozen segment go on where it is."""

    ref: SegmentRef
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoseTouch:
    """Nothing is known of a segment any more: it is neither dead nor alive."""

    ref: SegmentRef
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End a segment and with it the job, without a checkpoint."""

    ref: SegmentRef
    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """End a job that runs nowhere."""

    job: JobId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Keep a waiting job from being placed."""

    job: JobId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Let a held job be placed again."""

    job: JobId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Remove a container of ours that nobody owns, and every process in its cgroup."""

    node: NodeName
    view: SegmentView
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Find out whether the node can checkpoint and resume."""

    node: NodeName
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Return:
    """A node that was called dead is back: end everything of ours there before it is used."""

    node: NodeName
    reason: str


Action = (
    Place
    | Vacate
    | Save
    | Settle
    | Adopt
    | Thaw
    | LoseTouch
    | Stop
    | Drop
    | Hold
    | Release
    | Sweep
    | Probe
    | Return
)


def jobs_of(action: Action) -> tuple[JobId, ...]:
    """Return the jobs that nothing else may be begun for while the action is under way."""
    match action:
        case Vacate(refs=refs):
            return tuple(ref.job for ref in refs)
        case Settle(ref=ref) | Adopt(ref=ref) | Thaw(ref=ref) | LoseTouch(ref=ref) | Stop(ref=ref):
            return (ref.job,)
        case Save(ref=ref):
            return (ref.job,)
        case Place(job=job) | Drop(job=job) | Hold(job=job) | Release(job=job):
            return (job,)
        case Sweep() | Probe() | Return():
            # What is swept has ended: its job may be anywhere by now.
            return ()


def node_of(action: Action) -> NodeName | None:
    """Return the node that the action works on, None when it only changes our own records."""
    match action:
        case Place(node=node) | Vacate(node=node) | Sweep(node=node) | Probe(node=node):
            return node
        case Return(node=node):
            return node
        case Settle(ref=ref) | Adopt(ref=ref) | Thaw(ref=ref) | Stop(ref=ref) | Save(ref=ref):
            return ref.node
        case LoseTouch() | Drop() | Hold() | Release():
            return None
