"""The nouns of the PBS model.  Moments are seconds since 1970; all of it can be stored as JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of a job: what it asks for, or what it has of one vnode."""

    ncpus: int = 1
    mem_kb: int = 0
    ngpus: int = 0
    #: Exactly this vnode; empty is any.
    vnode: str = ""


@dataclass(slots=True, kw_only=True)
class Vnode:
    """A host, or a part of one."""

    name: str
    host: str
    ncpus: int = 4
    #: As it is printed; the model counts in ``mem_kb``.
    mem: str = "8gb"
    mem_kb: int = 8 * 1024 * 1024
    ngpus: int = 0
    #: None where the MoM does not tell it: the parts of a host.
    pcpus: int | None = 2
    sharing: str = "default_shared"
    multi: bool = False
    down: bool = False
    offline: bool = False
    maintenance: bool = False
    comment: str = ""
    #: When its state changed last, and when a job last left it.
    changed: float = 0.0
    used: float | None = None
    #: Names of resources that were assigned at least once: printed ever after.
    ever: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Job:
    """A job of PBS's."""

    number: int
    name: str
    owner: str
    queue: str
    select: str
    place: str
    asked: list[Chunk]
    walltime: int | None = None
    #: One of PBS's letters: Q, R, S, H.
    state: str = "Q"
    substate: int = 10
    hold: str = "n"
    created: float = 0.0
    modified: float = 0.0
    started: float | None = None
    runs: int = 0
    #: What it has, by vnode; and its place in the list of jobs of each of them.
    has: list[Chunk] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    comment: str = ""
    arguments: str = ""
    expected: float | None = None
    planned: list[Chunk] = field(default_factory=list)
    exit_status: int | None = None
    #: When a preempted job is gone, and when one that was requeued was.
    dies: float | None = None
    died: float | None = None
    rerunnable: bool = True
    #: Attributes as they are printed, over those that the model makes.
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether it has something of its vnodes, if only memory."""
        return self.state in {"R", "S"}


@dataclass(slots=True, kw_only=True)
class Reservation:
    """Vnodes that are set aside for a time."""

    name: str
    owner: str
    begin: float
    seconds: int
    has: list[Chunk]
    maintenance: bool = False
    created: float = 0.0
    label: str = "res1"

    @property
    def end(self) -> float:
        return self.begin + self.seconds


#: Queues and their priorities; the scheduler serves the highest first.
QUEUES: Mapping[str, int] = {"workq": 200, "backfill": 0}
#: Jobs of queues with this priority preempt those of the others (``preempt_queue_prio``).
EXPRESS = 150


@dataclass(slots=True, kw_only=True)
class Cluster:
    """All that the server knows."""

    server: str = "vm"
    #: The moment; None is the clock's.
    now: float | None = None
    next_job: int = 1
    vnodes: list[Vnode] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    reservations: list[Reservation] = field(default_factory=list)
    #: The server does not answer.
    dead: bool = False
    query_other_jobs: bool = True
    #: How many waiting jobs get an expected start.
    backfill_depth: int = 5
    #: What happens to preempted jobs: R requeued, D deleted, S suspended; "" is nothing.
    preempt_order: str = "R"
    #: Seconds between SIGTERM and the end of a job that is requeued or deleted.
    kill_delay: float = 10.0
