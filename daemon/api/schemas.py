"""The documents that cross the door, validated: requests first, then views.

Field names are a contract with scripts (docs/cli-json.md): fields may be added, never
renamed.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from daemon.api import syntax
from daemon.core.types import (
    AfterCrash,
    CheckpointMode,
    JobState,
    Movable,
    NodeState,
    Outcome,
)

_Path = Annotated[str, AfterValidator(syntax.path)]


def _name(fields: dict[str, Any]) -> str:
    return syntax.name_of(fields.get("command", ()))


class _Request(BaseModel):
    """Parsed from JSON in strict mode: a number in quotes is a mistake somewhere."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class _View(BaseModel):
    #: Readers ignore what they do not know, so that old clients outlive new daemons.
    model_config = ConfigDict(frozen=True, extra="ignore")


class MountRequest(_Request):
    """A bind mount."""

    source: Annotated[str, AfterValidator(syntax.mount_path)]
    target: Annotated[str, AfterValidator(syntax.mount_target)]
    read_only: bool = False


class JobRequest(_Request):
    """What a submitter asks for.  Whether he may have it is for ``admission``."""

    image: Annotated[str, AfterValidator(syntax.image)]
    command: Annotated[tuple[str, ...], AfterValidator(syntax.command)]
    #: Made of the command when it is left out.
    name: Annotated[str, AfterValidator(syntax.job_name)] = Field(default_factory=_name)
    cpus: Annotated[int, Field(ge=1, le=4096)] = 1
    #: No engine accepts a limit below 6 MiB.
    mem_mib: Annotated[int, Field(ge=6, le=2**26)] = 1024
    mounts: Annotated[
        tuple[MountRequest, ...], Field(max_length=64), AfterValidator(syntax.distinct_targets)
    ] = ()
    env: Annotated[dict[str, str], AfterValidator(syntax.environment)] = {}
    workdir: _Path | None = None
    #: Limit on the sum of all segments.
    time_seconds: Annotated[int, Field(ge=1, le=10 * 365 * 86400)] | None = None
    output: _Path | None = None
    checkpoint: CheckpointMode = CheckpointMode.CRIU
    #: Between two periodic checkpoints; left out, stopgap chooses.
    checkpoint_every_seconds: Annotated[int, Field(ge=1, le=10 * 365 * 86400)] | None = None
    after_crash: AfterCrash = AfterCrash.HOLD
    #: What it writes, as it sees it, below its mounts.
    results: Annotated[tuple[_Path, ...], Field(max_length=64)] = ()


class VacateRequest(_Request):
    """How long the jobs of a node have."""

    seconds: Annotated[float, Field(gt=0, le=86400)]


class PanicRequest(_Request):
    """Which nodes; none is all of them."""

    nodes: Annotated[tuple[str, ...], Field(max_length=100_000)] = ()
    #: It is over: they may be used again.
    over: bool = False


class SetupRequest(_Request):
    """Whether to do it or only to tell."""

    dry_run: bool = False


class PrologCall(_Request):
    """What a node's prolog says (docs/node-protocol.md)."""

    model_config = ConfigDict(extra="ignore", strict=False)

    node: Annotated[str, AfterValidator(syntax.node_name)]
    time: float
    nonce: Annotated[str, Field(min_length=8, max_length=128)]
    #: The priority job's number, as the batch system writes it.
    job: Annotated[str, Field(max_length=64)] = ""
    seconds: Annotated[float, Field(gt=0, le=86400)]


class JobView(_View):
    """One line of the queue."""

    id: int
    name: str
    user: str
    state: JobState
    reason: str = ""
    node: str | None = None
    cpus: int
    mem_mib: int
    exit_code: int | None = None
    submitted: datetime
    started: datetime | None = None
    ended: datetime | None = None
    run_seconds: float = 0.0
    lost_seconds: float = 0.0
    evictions: int = 0
    migrations: int = 0
    image: str
    command: list[str]
    checkpoint: CheckpointMode
    movable: Movable = Movable.UNKNOWN
    #: What stands in the way of a move, or why nothing is known of it yet.
    movable_why: str = ""


class SegmentView(_View):
    """One continuous execution on one node."""

    epoch: int
    node: str
    started: datetime
    ended: datetime | None = None
    outcome: Outcome
    resumed_from: int | None = None


class CheckpointView(_View):
    """One saved state."""

    generation: int
    time: datetime
    bytes: int
    #: Without what the generation before it holds too.
    written_bytes: int
    #: Not compressed.
    plain_bytes: int
    seconds: float
    kind: str
    #: Where it lies; empty where every node can read it, or when it is no more.
    nodes: list[str] = []


class EventView(_View):
    """One step of the job's life."""

    time: datetime
    event: str
    state: JobState
    reason: str = ""


class JobDetail(JobView):
    """A job with its history.  Values of its environment are in no view."""

    mounts: list[MountRequest] = []
    workdir: str | None = None
    time_seconds: float | None = None
    output: str | None = None
    image_digest: str | None = None
    checkpoint_every_seconds: float | None = None
    after_crash: AfterCrash = AfterCrash.HOLD
    results: list[str] = []
    #: What keeps it from going on after a crash.
    changed_files: list[str] = []
    segments: list[SegmentView] = []
    checkpoints: list[CheckpointView] = []
    events: list[EventView] = []


class JobChange(JobView):
    """A job after a wish about it was written down; the loop makes it so."""

    result: Literal[
        "cancelled", "already_cancelled", "held", "already_held", "released", "already_released"
    ]


class FigureView(_View):
    """Seconds of the last evictions."""

    p50: float
    max: float


class EvictionsView(_View):
    """How fast jobs got out of the way lately."""

    count: int
    #: From the look that saw the claim to the frozen job.
    freeze_seconds: FigureView
    #: From the daemon's decision to the empty cgroup.
    vacate_seconds: FigureView


class ShadowView(_View):
    """What would have been done, had it not been shadow mode."""

    #: Since when this was counted: the start of the daemon, or of shadow mode.
    since: datetime
    #: Segments that would have been started or resumed.
    starts: int = 0
    #: Jobs that would be on nodes now.
    running: int = 0
    #: How many jobs would have been evicted, by node.
    evictions: dict[str, int] = {}


class StatusView(_View):
    """The daemon in one sentence and some numbers."""

    #: The sentence that systemd shows too.
    summary: str
    #: False while the batch system's or too many engines' word is missing.
    healthy: bool
    version: str
    instance: str
    batch: str
    batch_version: str = ""
    #: The last answer of the batch system: the picture that everything is decided on.
    batch_answered: datetime | None = None
    #: How old that picture is, and how long the last question took, answered or not.
    batch_age_seconds: float | None = None
    batch_seconds: float | None = None
    last_tick: datetime | None = None
    tick_seconds: float | None = None
    #: What the daemon itself costs its machine.
    memory_mib: float | None = None
    cpu_seconds: float | None = None
    #: How many jobs are in each state, ended ones left out.
    jobs: dict[JobState, int] = {}
    nodes: dict[NodeState, int] = {}
    #: What needs a person, a line each.
    problems: list[str] = []
    #: Of the last thousand; null before the first.
    evictions: EvictionsView | None = None
    #: Null when jobs are really started.
    shadow: ShadowView | None = None


class ClaimView(_View):
    """Who wants the node, and when."""

    source: str
    at: datetime
    deadline: datetime | None = None
    detail: str = ""


class NodeView(_View):
    """One node as the batch system, its engine and an administrator see it."""

    name: str
    state: NodeState
    #: The batch system's own words.
    words: str = ""
    cpus: int
    memory_mib: int
    partitions: list[str] = []
    #: Passed the canary since its last boot and package change, and answers.
    fit: bool = False
    reachable: bool = False
    drained: bool = False
    #: Panic was called on it and is not over.
    panicked: bool = False
    #: Dead by an administrator's word.
    gone: bool = False
    #: Why no job is put there now; empty when one may be.
    reason: str = ""
    jobs: list[int] = []
    claims: list[ClaimView] = []


class DrainView(_View):
    """A node after a drain or its end."""

    node: str
    drained: bool
    result: Literal["drained", "already_drained", "undrained", "already_undrained"]


class GoneView(_View):
    """A node after an administrator called it dead."""

    node: str
    result: Literal["gone", "already_gone"]
    #: Jobs that fall back to their last checkpoints.
    jobs: list[int] = []


class VacateView(_View):
    """An emptied node."""

    node: str
    #: Processes of ours that are left: 0, or the call would have been refused.
    processes: int
    #: Jobs that were saved before the time was up.
    evicted: int = 0
    #: Jobs that were not, and fall back to their last checkpoint.
    killed: int = 0
    seconds: float = 0.0


class PanicView(_View):
    """A node after panic was called on it, or was said to be over."""

    node: str
    result: Literal["panic", "already_panic", "over", "already_over", "no_such_node"]
    #: Proven by the node's cgroups; null when it was not asked.
    empty: bool | None = None
    #: Why it is not; empty when it is.
    reason: str = ""
    #: Jobs that were saved, and those that fall back to their last checkpoint.
    evicted: int = 0
    killed: int = 0
    #: From the call to the proof.
    seconds: float = 0.0


class SetupView(_View):
    """What was done to a node, or would be."""

    node: str
    dry_run: bool
    #: False when everything was in place.
    changed: bool
    steps: list[str] = []


class ProbeView(_View):
    """What the canary found."""

    node: str
    fit: bool
    #: What stands in the way and what to do; empty when fit.
    reason: str = ""
    rounds: int = 0
    seconds: float = 0.0
    fingerprint: dict[str, str] = {}


class ErrorView(_View):
    """Every answer that is not a success."""

    error: str
    hint: str = ""
