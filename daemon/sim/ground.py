"""Where and when nodes are idle: by the cluster model, or as it was recorded."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from adapters.mock_slurm.model import Model
from adapters.mock_slurm.nouns import Discipline, Machine, PriorityJob
from daemon.core.types import NodeName
from daemon.sim.workload import Samples, Workload

#: A node, and which priority job wants it.
Taken = tuple[NodeName, int]
#: The same, and when it is vacant.
Vacant = tuple[NodeName, int, float]


@dataclass(slots=True)
class Turn:
    """What happened to nodes at one moment; one that went from job to job is not in it."""

    freed: dict[NodeName, None] = field(default_factory=dict)
    taken: list[Taken] = field(default_factory=list)


class Started(NamedTuple):
    """A priority job that ran."""

    id: str
    submit: float
    nodes: int
    processors: int
    began: float
    #: When its first instruction ran: later than that if nodes had to be vacated.
    first: float
    ended: float


class Ground(Protocol):
    """Nodes that priority jobs take and leave."""

    names: tuple[NodeName, ...]
    begin: float
    #: Nodes that priority jobs wait for, nobody knows until when.
    waiting: int

    def next_event(self) -> float | None:
        """Return when nodes change hands next, as far as that is certain."""

    def advance_to(self, moment: float) -> Turn:
        """Let time pass, and return what happened; until ``moment`` nothing did."""

    def vacated(self, now: float, vacant: Sequence[Vacant]) -> None:
        """Let priority jobs have the nodes that they waited for, now or when that is certain."""

    def started(self) -> Iterator[Started]:
        """Yield every priority job, after the last event."""


class ModelGround:
    """A cluster model that replays priority jobs."""

    def __init__(
        self,
        workload: Workload,
        *,
        held: Container[NodeName],
        discipline: Discipline = Discipline.EASY,
        pass_per_event: bool = True,
    ) -> None:
        """Submit all jobs; a node in ``held`` must be vacated first."""
        width = len(str(workload.nodes))
        self.names = tuple(NodeName(f"n{n:0{width}}") for n in range(1, workload.nodes + 1))
        self.begin = workload.jobs[0].submit
        self._workload = workload
        self._held = held
        self.waiting = 0
        self._turn = Turn()
        self._model = Model(
            (Machine(name=name, cpus=workload.cores_per_node) for name in self.names),
            start=self.begin,
            discipline=discipline,
            pass_per_event=pass_per_event,
            prolog=self._take,
            left=self._leave,
        )
        for number, job in enumerate(workload.jobs):
            priority = PriorityJob(
                id=number,
                submit=job.submit,
                nodes=workload.nodes_of(job),
                runtime=job.runtime,
                limit=job.limit,
            )
            self._model.submit(priority)

    def _take(self, job: PriorityJob, nodes: Sequence[NodeName]) -> dict[NodeName, float | None]:
        freed, taken, held = self._turn.freed, self._turn.taken, self._held
        number = job.id
        waits: dict[NodeName, float | None] = {}
        for node in nodes:
            if node in freed:
                # From one job to the next: nobody saw it idle.
                del freed[node]
                continue
            taken.append((node, number))
            if node in held:
                waits[node] = None
        self.waiting += len(waits)
        return waits

    def _leave(self, nodes: Sequence[NodeName]) -> None:
        self._turn.freed.update(dict.fromkeys(nodes))

    def next_event(self) -> float | None:
        return self._model.next_event()

    def advance_to(self, moment: float) -> Turn:
        turn = self._turn = Turn()
        self._model.advance_to(moment)
        return turn

    def vacated(self, now: float, vacant: Sequence[Vacant]) -> None:
        self.waiting -= len(vacant)
        self._model.advance_to(now)
        of_job: dict[int, list[NodeName]] = {}
        over: dict[int, float] = {}
        for node, job, at in vacant:
            if job in over:
                of_job[job].append(node)
                over[job] = max(at, over[job])
            else:
                of_job[job], over[job] = [node], at
        # A job begins when the last of its nodes is vacant: the others do not matter.
        for job, nodes in of_job.items():
            self._model.finish_prolog(job, *nodes, at=over[job])

    def started(self) -> Iterator[Started]:
        for job, (priority, began, first, ended) in zip(
            self._workload.jobs, self._model.times(), strict=True
        ):
            if began is not None and first is not None and ended is not None:
                yield Started(
                    job.id, job.submit, priority.nodes, job.processors, began, first, ended
                )


class GapGround:
    """Gaps as they were recorded: nobody knows the priority jobs, only when they came."""

    def __init__(self, samples: Samples, *, held: Container[NodeName]) -> None:
        self.names = tuple(sorted({NodeName(gap.node) for gap in samples.gaps}))
        self.begin = samples.begin
        self._held = held
        self.waiting = 0
        self._gaps = samples.gaps
        self._waits: dict[int, float] = {}
        events = [(g.begin, 1, n) for n, g in enumerate(samples.gaps)]
        events += [(g.end, 0, n) for n, g in enumerate(samples.gaps)]
        self._events = sorted(events, reverse=True)

    def next_event(self) -> float | None:
        return self._events[-1][0] if self._events else None

    def advance_to(self, moment: float) -> Turn:
        turn = Turn()
        while self._events and self._events[-1][0] <= moment:
            _, begins, number = self._events.pop()
            node = NodeName(self._gaps[number].node)
            if begins:
                turn.freed[node] = None
            else:
                turn.taken.append((node, number))
                self.waiting += node in self._held
        return turn

    def vacated(self, now: float, vacant: Sequence[Vacant]) -> None:
        self.waiting -= len(vacant)
        for _, job, at in vacant:
            self._waits[job] = at

    def started(self) -> Iterator[Started]:
        for number, gap in enumerate(self._gaps):
            first = self._waits.get(number, gap.end)
            yield Started(
                id=f"{gap.node}@{gap.end:.0f}",
                submit=gap.end,
                nodes=1,
                processors=1,
                began=gap.end,
                first=first,
                ended=first,
            )
