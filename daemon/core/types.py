"""The nouns of stopgap, as frozen values.

Every module speaks in these; none of them can act.  Durations are ``timedelta``
or carry their unit in the name, moments are timezone-aware UTC.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import NewType

NodeName = NewType("NodeName", str)
JobId = NewType("JobId", int)

#: Counts the segments of one job, from 1; never reused, so a late orphan can be told apart.
Epoch = NewType("Epoch", int)

#: Counts the checkpoints of one job, from 1; the number of its directory.
Generation = NewType("Generation", int)


class JobState(StrEnum):
    """Where a job is in its life.  Stored; values never change their meaning."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    EVICTING = "evicting"
    PARKED = "parked"
    RESUMING = "resuming"
    HELD = "held"
    #: Its node does not answer: neither dead nor alive until that is proven.
    UNREACHABLE = "unreachable"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


TERMINAL = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.TIMED_OUT})
#: States in which a process tree of the job may exist somewhere.
PLACED = frozenset(
    {
        JobState.STARTING,
        JobState.RUNNING,
        JobState.EVICTING,
        JobState.RESUMING,
        JobState.UNREACHABLE,
    }
)


class Outcome(StrEnum):
    """How a segment ended, or that it has not."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    EVICTED = "evicted"
    CRASHED = "crashed"


class CheckpointMode(StrEnum):
    """What the submitter declared about saving the job."""

    CRIU = "criu"
    #: The job saves itself when it gets SIGTERM and is then started again.
    SIGNAL = "signal"
    #: Started again from the beginning.
    NONE = "none"


class CheckpointKind(StrEnum):
    """Why a checkpoint was taken.  Stored; values never change their meaning."""

    #: Its segment ended with it.
    EVICTION = "evict"
    #: Its segment went on: what the job did since can be lost, with its node.
    PERIODIC = "periodic"
    #: The same, soon after the start, to find out whether the job can be saved at all.
    TRIAL = "trial"


class AfterCrash(StrEnum):
    """What to do when files of a job have changed since the checkpoint that it is resumed from."""

    #: Go on all the same.
    RESUME = "resume"
    #: Touch nothing and let a person look.
    HOLD = "hold"


class Movable(StrEnum):
    """Whether a job can be saved, by its last checkpoint.  Stored."""

    YES = "yes"
    NO = "no"
    #: Not tried yet.
    UNKNOWN = "unknown"


class NodeState(StrEnum):
    """What the batch system's word about a node means to us."""

    #: Nothing of the batch system's is there and no flag says otherwise.
    IDLE = "idle"
    #: Priority jobs hold all or a part of it.
    BUSY = "busy"
    #: Down, drained, powered off, in maintenance, silent: not ours to use.
    UNAVAILABLE = "unavailable"
    #: A word that we do not know.
    UNKNOWN = "unknown"


class ClaimSource(StrEnum):
    """Who says that a node is wanted."""

    ALLOCATED = "allocated"
    PLANNED = "planned"
    RESERVED = "reserved"
    DRAINING = "draining"
    PROLOG = "prolog"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Evidence that a priority job, or a person, wants a node."""

    node: NodeName
    source: ClaimSource
    #: When the node is wanted; in the past when it already is.
    at: datetime
    #: When nothing of ours may be left; None leaves that to the policy.
    deadline: datetime | None = None
    #: One line for people: which priority job, which reservation, who asked.
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine as its batch system describes it."""

    name: NodeName
    state: NodeState
    cpus: int
    memory_mib: int
    #: The batch system's own words, for people.
    words: str = ""
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    #: Claims that the batch system's answer implies, earliest first.
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """One answer of the batch system."""

    nodes: Mapping[NodeName, Node]
    taken: datetime
    #: Why a part of it is missing: the claims that it has count, and nothing is started on
    #: it.  Empty is a complete answer.
    partial: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A bind mount from a shared file system."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The submitter, as the kernel named him."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What the submitter asked for.  Values of environment variables are not part of it."""

    name: str
    owner: Owner
    image: str
    command: tuple[str, ...]
    cpus: int = 1
    memory_mib: int = 1024
    mounts: tuple[Mount, ...] = ()
    workdir: str | None = None
    #: Limit on the sum of all segments; None is no limit.
    time_limit: timedelta | None = None
    #: A file of the submitter's to which the log is copied.
    output: str | None = None
    checkpoint: CheckpointMode = CheckpointMode.CRIU
    #: Between two periodic checkpoints; None leaves that to stopgap.
    checkpoint_every: timedelta | None = None
    after_crash: AfterCrash = AfterCrash.HOLD
    #: What it writes, as it sees it; without a word everything below its writable mounts.
    results: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRef:
    """Names one segment without saying anything about it."""

    job: JobId
    epoch: Epoch
    node: NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One continuous execution of a job on one node."""

    job: JobId
    epoch: Epoch
    node: NodeName
    started: datetime
    ended: datetime | None = None
    outcome: Outcome = Outcome.RUNNING
    #: The generation it was resumed from; None is a start from the beginning.
    resumed_from: Generation | None = None

    @property
    def ref(self) -> SegmentRef:
        return SegmentRef(job=self.job, epoch=self.epoch, node=self.node)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a process takes for granted where it runs, and must find again where it goes on."""

    #: The architecture, as ``uname -m`` says it.
    architecture: str
    cgroup: str
    #: The processor's flags.
    cpu: frozenset[str]
    criu: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A saved state that a job can be resumed from."""

    job: JobId
    generation: Generation
    #: The segment that it was taken from.
    epoch: Epoch
    #: By the clock of its node, while the job stood still: what the segment printed until
    #: then belongs to the saved state, what it printed later does not.
    time: datetime
    size_bytes: int
    seconds: float
    kind: CheckpointKind = CheckpointKind.EVICTION
    #: Where it was taken; None is not known.
    machine: Machine | None = None
    #: What lies on the disk once for it and for the generation that it stands on.
    shared_bytes: int = 0
    #: The generation that it stands on, as links to the same content; None is a full one.
    parent: Generation | None = None

    #: What its size is smaller by, because it is compressed.
    saved_bytes: int = 0

    @property
    def plain_bytes(self) -> int:
        """What it would take, and what it does when it is resumed."""
        return self.size_bytes + self.saved_bytes

    @property
    def written_bytes(self) -> int:
        """What was written for it."""
        return self.size_bytes - self.shared_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job with everything that a decision about it needs."""

    id: JobId
    spec: JobSpec
    state: JobState
    submitted: datetime
    #: Why it is in this state, for people.
    reason: str = ""
    started: datetime | None = None
    ended: datetime | None = None
    exit_code: int | None = None
    #: The image's content digest, pinned at the first start.
    image_digest: str | None = None
    #: The newest segment, running or not; None before the first start.
    segment: Segment | None = None
    #: The highest epoch ever used, also by a segment that never ran.
    last_epoch: int = 0
    #: What a resume starts from; None is the beginning.
    generation: Generation | None = None
    #: Wall time of all ended segments.
    ran: timedelta = timedelta()
    lost: timedelta = timedelta()
    evictions: int = 0
    migrations: int = 0
    #: The submitter or an administrator wants it gone / kept from running.
    cancel_wanted: bool = False
    hold_wanted: bool = False
    #: Faults in a row that were not the job's own; a longer pause follows each.
    faults: int = 0
    #: Not to be placed before this moment.
    not_before: datetime | None = None
    movable: Movable = Movable.UNKNOWN
    #: What stands in the way when it is not.
    movable_why: str = ""
    #: The moment that its generation holds.
    saved: datetime | None = None
    #: What its generation needs of a node; None is not known.
    machine: Machine | None = None
    #: When a checkpoint that leaves it running was last tried, and how long it stood still.
    save_tried: datetime | None = None
    save_cost: timedelta | None = None
    #: What its generations take.
    stored_bytes: int = 0
    #: Set while its generation is older than what it did; then what to do about its files.
    after_crash: AfterCrash | None = None
    #: Files that keep it from being resumed after a crash.
    changed_files: tuple[str, ...] = ()
    #: Kinds of processors on which a move went wrong.
    avoid: tuple[str, ...] = ()


class Phase(StrEnum):
    """What an engine says about a container of ours."""

    CREATED = "created"
    RUNNING = "running"
    FROZEN = "frozen"
    EXITED = "exited"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentView:
    """A container of ours as its engine sees it.  Docker's word, so no proof of death."""

    job: JobId
    epoch: Epoch
    container: str
    phase: Phase
    #: The content digest of what it was made from; empty is not known.
    image: str = ""
    #: As the engine reports it; 137 is SIGKILL, 143 SIGTERM.  None before the end.
    exit_code: int | None = None
    oom_killed: bool = False
    #: The engine was out of reach at some time since the start: it may have missed the end.
    unwitnessed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineView:
    """One look at one node's engine."""

    node: NodeName
    reachable: bool
    #: Passed the canary since its last boot and package change.
    fit: bool = False
    #: Jobs of users other than root can be checkpointed here (CAP_SYS_RESOURCE).
    other_users: bool = True
    #: Why it is not reachable or not fit, for people.
    why: str = ""
    #: Since when it has not answered.
    silent_since: datetime | None = None
    #: A canary that failed is not run again before this moment.
    probe_after: datetime | None = None
    segments: tuple[SegmentView, ...] = ()
    #: What it has for a process; None is not known.
    machine: Machine | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """How often segments were lost with their nodes, as far as it was observed."""

    ran: timedelta = timedelta()
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GapHistory:
    """The gaps of one node that have ended, as far as they were observed."""

    idle_seconds: float = 0.0
    ended: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything a decision is made from, at one moment."""

    now: datetime
    #: The same on the site's clocks, for what depends on the time of day; None is ``now``.
    local: datetime | None = None
    #: The last complete answer of the batch system; None before the first.
    cluster: Cluster | None
    #: The batch system answered when it was last asked: only then is anything started.
    answered: bool = True
    #: Nodes that were idle in each of the last looks, as many as the site asks for.
    settled: frozenset[NodeName] = frozenset()
    #: When a node that is not free to fill stopped being so.
    since: Mapping[NodeName, datetime] = field(default_factory=lambda: MappingProxyType({}))
    engines: Mapping[NodeName, EngineView] = field(default_factory=lambda: MappingProxyType({}))
    #: All jobs that have not ended, in order of submission.
    jobs: tuple[Job, ...] = ()
    #: Claims that did not come through the batch system: hooks, operators.
    claims: tuple[Claim, ...] = ()
    #: Nodes that an administrator closed to us.
    drained: frozenset[NodeName] = frozenset()
    #: When an administrator called panic, for the nodes where it is not over.
    panicked: Mapping[NodeName, datetime] = field(default_factory=lambda: MappingProxyType({}))
    #: Nodes that are dead by an administrator's word.
    gone: frozenset[NodeName] = frozenset()
    #: Jobs and nodes with an action under way: nothing new is begun on them.
    busy_jobs: frozenset[JobId] = frozenset()
    busy_nodes: frozenset[NodeName] = frozenset()
    #: Segments that have ended and whose containers are being removed.
    leaving: frozenset[SegmentRef] = frozenset()
    #: Of these jobs, those that are being saved and are to go on: an eviction may come first.
    saving: frozenset[JobId] = frozenset()
    #: Where jobs are being placed: they need their room before their records say so.
    coming: Mapping[JobId, NodeName] = field(default_factory=lambda: MappingProxyType({}))
    #: Nodes that have the generation of a parked job; one that all nodes can read is not here.
    held: Mapping[JobId, tuple[NodeName, ...]] = field(default_factory=lambda: MappingProxyType({}))
    losses: Losses = Losses()
    #: What is known of the gaps of nodes.
    gaps: Mapping[NodeName, GapHistory] = field(default_factory=lambda: MappingProxyType({}))

    def seat(self, job: Job) -> NodeName | None:
        """Return the node on which a job has its room, or soon will."""
        if job.state in PLACED and job.segment is not None:
            return job.segment.node
        return self.coming.get(job.id)
