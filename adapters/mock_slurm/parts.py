"""What the model keeps about each node and each priority job; changed by the model alone."""

from dataclasses import dataclass, field

from adapters.mock_slurm.nouns import (
    JobPhase,
    JobView,
    Machine,
    MachineView,
    PriorityJob,
    Reservation,
)
from adapters.mock_slurm.schedule import Want
from daemon.core.types import NodeName

NEVER = float("inf")


@dataclass(slots=True, eq=False)
class Run:
    """A priority job and how far it is."""

    job: PriorityJob
    want: Want
    phase: JobPhase = JobPhase.PENDING
    nodes: tuple[int, ...] = ()
    began: float | None = None
    first: float | None = None
    ended: float | None = None
    #: Counts starts: jobs that end at the same moment end in the order in which they started.
    order: int = 0
    #: Its next event; an event of another time is void.
    due: float = NEVER
    #: When its limit ends it, as long as it runs.
    limit: float = NEVER
    #: When conservative backfill lets it start at the latest.
    promised: float | None = None
    #: What a suspended job still has to do, in seconds.
    left: float = 0.0
    #: Nodes whose prolog has not ended.
    prologs: set[int] = field(default_factory=set)
    #: Those of them whose end is certain.
    timed: frozenset[int] = frozenset()
    #: When the last of those ends.
    over: float = 0.0

    def forget(self) -> None:
        """Make it as if it had never started."""
        self.phase, self.nodes, self.due, self.limit = JobPhase.PENDING, (), NEVER, NEVER
        self.began = self.first = self.promised = None
        self.prologs.clear()

    def view(self, hosts: "list[Host]") -> JobView:
        names = tuple(hosts[node].machine.name for node in self.nodes)
        return JobView(
            job=self.job,
            phase=self.phase,
            nodes=names,
            began=self.began,
            first=self.first,
            ended=self.ended,
        )


@dataclass(slots=True, eq=False)
class Host:
    """A node and what is on it."""

    machine: Machine
    down: bool = False
    drained: bool = False
    run: Run | None = None
    #: Those that have not ended, earliest first.
    reservations: list[Reservation] = field(default_factory=list)

    @property
    def name(self) -> NodeName:
        return self.machine.name

    def is_closed(self, now: float) -> bool:
        """Tell whether nothing may start here."""
        return self.down or self.drained or self.reserved(now) is not None

    def reserved(self, now: float) -> Reservation | None:
        """Return the reservation that is on."""
        first = self.reservations[0] if self.reservations else None
        return first if first is not None and first.begin <= now else None

    def free_until(self) -> float:
        """Return when the next reservation begins."""
        return self.reservations[0].begin if self.reservations else NEVER

    def view(self, now: float) -> MachineView:
        run, reserved = self.run, self.reserved(now)
        later = [known for known in self.reservations if known.begin > now]
        return MachineView(
            machine=self.machine,
            down=self.down,
            drained=self.drained,
            job=run.job if run else None,
            phase=run.phase if run else None,
            began=run.began if run else None,
            reserved=reserved,
            next_reserved=later[0] if later else None,
        )
