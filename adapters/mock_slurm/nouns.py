"""The nouns of the cluster model.  Moments are seconds since 1970, as in traces."""

from dataclasses import dataclass
from enum import StrEnum

from daemon.core.types import NodeName


class JobPhase(StrEnum):
    """Where a priority job is."""

    PENDING = "pending"
    #: It has its nodes; their prologs have not all ended.
    PROLOG = "prolog"
    RUNNING = "running"
    SUSPENDED = "suspended"
    COMPLETING = "completing"
    ENDED = "ended"


class Discipline(StrEnum):
    """Who may overtake whom in the queue."""

    #: Nobody: first come, first served.
    FCFS = "fcfs"
    #: Who does not delay the first job that waits.
    EASY = "easy"
    #: Who delays nobody.
    CONSERVATIVE = "conservative"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A node as it is bought."""

    name: NodeName
    cpus: int = 4
    memory_mib: int = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityJob:
    """A job of the batch system, which uses whole nodes."""

    id: int
    #: When it enters the queue.
    submit: float
    nodes: int
    #: How long it takes once it runs, in seconds; cut off by the limit.
    runtime: float
    limit: float
    #: Exactly these nodes; empty is any.
    named: tuple[NodeName, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Nodes that are taken out of the schedule for a time."""

    name: str
    nodes: tuple[NodeName, ...]
    begin: float
    end: float
    maintenance: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A priority job at this moment."""

    job: PriorityJob
    phase: JobPhase
    nodes: tuple[NodeName, ...] = ()
    #: When it got its nodes.
    began: float | None = None
    #: When its first instruction ran: later than that by the slowest prolog.
    first: float | None = None
    ended: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineView:
    """A node at this moment."""

    machine: Machine
    down: bool = False
    drained: bool = False
    #: The priority job that holds it.
    job: PriorityJob | None = None
    phase: JobPhase | None = None
    began: float | None = None
    #: The reservation that is on, and the next one.
    reserved: Reservation | None = None
    next_reserved: Reservation | None = None

    @property
    def allocated(self) -> bool:
        """Whether its cores are given away: a suspended job gives them back, as with Slurm."""
        return self.phase in {JobPhase.PROLOG, JobPhase.RUNNING}


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The expected start of the first priority job that waits."""

    job: PriorityJob
    at: float
    nodes: frozenset[NodeName]
