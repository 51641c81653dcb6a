"""Low-priority jobs and nodes as the simulator keeps them; changed by the harvester alone."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from daemon.core.fill import eviction_cost
from daemon.core.policy import Policy
from daemon.core.saving import interval
from daemon.core.types import (
    EngineView,
    Epoch,
    GapHistory,
    Generation,
    Job,
    JobId,
    JobSpec,
    JobState,
    Losses,
    Movable,
    Node,
    NodeName,
    NodeState,
    Owner,
    Phase,
    Segment,
    SegmentView,
)
from daemon.sim.costs import Costs
from daemon.sim.supply import Size

_START = datetime(1970, 1, 1, tzinfo=UTC)


def moment(seconds: float) -> datetime:
    """Return the moment of a trace as the daemon writes it."""
    return _START + timedelta(seconds=seconds)


class Kind:
    """What all jobs of one size have in common."""

    def __init__(self, size: Size, costs: Costs, policy: Policy, cores: int) -> None:
        self.size = size
        self.spec = JobSpec(
            name="job",
            owner=Owner(uid=size.uid, gid=size.uid),
            image="image",
            command=("job",),
            cpus=size.cpus,
            memory_mib=size.memory_mib,
        )
        #: Its part of a node.
        self.share = size.cpus / cores
        self.start = costs.start_seconds
        self.eviction_cost = eviction_cost(self._job())
        self.resume = costs.resume(size.memory_mib)
        #: How long a periodic checkpoint stops it.
        self.stall = costs.checkpoint(size.memory_mib)
        self.trial = policy.trial.total_seconds()
        self.every = self._interval(policy)

    def _job(self) -> Job:
        return Job(
            id=JobId(0),
            spec=self.spec,
            state=JobState.RUNNING,
            submitted=_START,
            movable=Movable.YES,
        )

    def _interval(self, policy: Policy) -> float:
        job = replace(self._job(), save_cost=timedelta(seconds=self.stall))
        return interval(job, Losses(), policy).total_seconds()

    def wall(self, work: float, *, first: bool) -> float:
        """Return how long so much work takes, periodic checkpoints included."""
        return work + self.saves(work, first=first) * self.stall

    def saves(self, work: float, *, first: bool) -> int:
        """Return how often the job is saved while it does so much; the trial comes first."""
        if first:
            return 0 if work < self.trial else 1 + int((work - self.trial) // self.every)
        return int(work // self.every)

    def work(self, wall: float, *, first: bool) -> float:
        """Return what is done in that time."""
        done = 0.0
        if first:
            if wall < self.trial + self.stall:
                return min(wall, self.trial)
            done, wall = self.trial, wall - self.trial - self.stall
        whole, rest = divmod(wall, self.every + self.stall)
        return done + whole * self.every + min(rest, self.every)

    def unsaved(self, work: float, *, first: bool) -> float:
        """Return what of so much work is in no checkpoint."""
        if first:
            return work if work < self.trial else (work - self.trial) % self.every
        return work % self.every


@dataclass(slots=True, eq=False)
class Work:
    """One low-priority job."""

    number: int
    kind: Kind
    submitted: float
    #: Seconds that it still has to run.
    left: float
    slot: "Slot | None" = None
    #: When its first instruction runs, and its last if nobody disturbs it.
    ready: float = 0.0
    finish: float = 0.0
    generation: int = 0
    epoch: int = 0
    #: Being evicted, it will be saved in time.
    saved: bool = True
    #: Where it ran last.
    last: NodeName | None = None

    def job(self) -> Job:
        """Return it as the plan knows jobs."""
        segment, state = None, JobState.PARKED if self.generation else JobState.QUEUED
        if self.slot is not None:
            state = JobState.RUNNING
            segment = Segment(
                job=JobId(self.number),
                epoch=Epoch(self.epoch),
                node=self.slot.name,
                started=moment(self.ready),
            )
        return Job(
            id=JobId(self.number),
            spec=self.kind.spec,
            state=state,
            submitted=moment(self.submitted),
            segment=segment,
            last_epoch=self.epoch,
            generation=Generation(self.generation) if self.generation else None,
            movable=Movable.YES,
        )


@dataclass(slots=True, eq=False)
class Slot:
    """A node, with what is free of it for us."""

    name: NodeName
    node: Node
    cpus: int
    memory_mib: int
    #: As many jobs as the policy allows at once.
    places: int
    works: list[Work] = field(default_factory=list)
    #: When the last order to it is carried out, and what its jobs' checkpoints write.
    ready: float = 0.0
    written_mib: int = 0
    #: No priority job holds it, and since when that is so or not.
    idle: bool = False
    since: float = 0.0
    #: Its gaps that have ended.
    gaps: int = 0
    idle_seconds: float = 0.0
    #: The batch system said so often enough.
    settled: bool = False
    #: Its jobs are being saved.
    vacating: bool = False
    #: Priority jobs that wait for it to be vacant.
    wanted: list[int] = field(default_factory=list)

    @classmethod
    def make(cls, name: NodeName, cores: int, memory_mib: int, policy: Policy) -> "Slot":
        """Return a node without jobs."""
        return cls(
            name=name,
            node=Node(name=name, state=NodeState.IDLE, cpus=cores, memory_mib=memory_mib),
            cpus=cores - policy.reserve_cpus,
            memory_mib=memory_mib - policy.reserve_memory_mib,
            places=policy.max_jobs_per_node,
        )

    def history(self) -> GapHistory:
        """Return what is known of its gaps."""
        return GapHistory(idle_seconds=self.idle_seconds, ended=self.gaps)

    def room(self, least: Size) -> int:
        """Return for how many of the smallest jobs there is room."""
        cpus, memory = self.cpus, self.memory_mib
        for work in self.works:
            cpus -= work.kind.size.cpus
            memory -= work.kind.size.memory_mib
        places = self.places - len(self.works)
        return min(cpus // least.cpus, memory // least.memory_mib, places)

    def view(self, ended: Collection[Work]) -> EngineView:
        """Return what its engine says; these jobs have exited."""
        return EngineView(
            node=self.name,
            reachable=True,
            fit=True,
            segments=tuple(_view(work, over=work in ended) for work in self.works),
        )


def _view(work: Work, *, over: bool) -> SegmentView:
    return SegmentView(
        job=JobId(work.number),
        epoch=Epoch(work.epoch),
        container="c",
        phase=Phase.EXITED if over else Phase.RUNNING,
        exit_code=0 if over else None,
    )
