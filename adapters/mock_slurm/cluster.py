"""What a cluster does by itself: jobs that start and end, and who is served next."""

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count

from adapters.mock_slurm.agenda import promise
from adapters.mock_slurm.nouns import (
    Discipline,
    JobPhase,
    Machine,
    PriorityJob,
    Reservation,
)
from adapters.mock_slurm.parts import NEVER, Host, Run
from adapters.mock_slurm.schedule import Shadow, Want, backfill, choose, shadow
from daemon.core.types import NodeName

#: Called when a job has just got these nodes.  Returns how many seconds the prolog takes, for
#: the nodes where it takes any; None is until ``finish_prolog``.  It must not change the model.
Prolog = Callable[[PriorityJob, Sequence[NodeName]], Mapping[NodeName, float | None]]
#: Called when a job gave nodes back.  It must not change the model either.
Left = Callable[[Sequence[NodeName]], None]

# What happens at the same moment happens in this order.  With one pass for a moment what frees
# nodes comes first; with a pass for each event submissions do.
EARLY, RESERVATION, RUN, LATE = range(4)

_NONE: frozenset[int] = frozenset()

Event = tuple[float, int, int, int, Run | Reservation]


class Cluster:
    """Nodes, priority jobs, and when something will happen to them."""

    def __init__(
        self,
        machines: Iterable[Machine] = (),
        *,
        start: float = 0.0,
        discipline: Discipline = Discipline.EASY,
        pass_per_event: bool = False,
        completing_seconds: float = 0.0,
        prolog: Prolog | None = None,
        left: Left | None = None,
    ) -> None:
        self._now = start
        self._discipline = discipline
        self._pass_per_event = pass_per_event
        self._submit_rank = EARLY if pass_per_event else LATE
        self._completing = completing_seconds
        self._prolog = prolog
        self._left = left
        self._hosts: list[Host] = []
        self._places: dict[NodeName, int] = {}
        #: Nodes that may be given out, in rising order.
        self._free: list[int] = []
        #: Nodes on which nothing may start: down, drained, reserved.
        self._closed: set[int] = set()
        self._runs: dict[int, Run] = {}
        self._queue: list[Run] = []
        #: When the limits of the running jobs end them, and their ids; in order.
        self._limits: list[tuple[float, int]] = []
        self._events: list[Event] = []
        #: A job that was submitted, where nothing else has changed since the last pass.
        self._newcomer: Run | None = None
        #: The limit of a running job is another since the last pass.
        self._moved = False
        self._serial = count()
        #: How many have not ended.
        self._reservations = 0
        for machine in machines:
            self.add_node(machine)

    def add_node(self, machine: Machine) -> None:
        """Put a new node into service."""
        if machine.name in self._places:
            raise ValueError(f"there is a node {machine.name} already")
        self._places[machine.name] = len(self._hosts)
        self._hosts.append(Host(machine))
        self._recount([machine.name])

    def _host(self, node: NodeName) -> Host:
        return self._hosts[self._places[node]]

    def _push(self, at: float, kind: int, what: Run | Reservation) -> None:
        order = what.order if isinstance(what, Run) else 0
        heapq.heappush(self._events, (at, kind, order, next(self._serial), what))

    @staticmethod
    def _is_void(event: Event) -> bool:
        return isinstance(event[4], Run) and event[4].due != event[0]

    def _happen(self, kind: int, what: Run | Reservation) -> bool:
        """Let it happen, and return whether a job may start or be planned otherwise by that."""
        if isinstance(what, Reservation):
            self._reservations -= what.end <= self._now
            for node in what.nodes:
                known = self._host(node).reservations
                known[:] = [each for each in known if each.end > self._now]
            self._recount(what.nodes, schedule=False)
        elif kind == self._submit_rank:
            waited = bool(self._queue)
            self._enqueue(what)
            # Whoever waits already was refused at the last pass, and nothing has changed.
            if waited and self._pass_per_event and not self._moved and self._queue[-1] is what:
                self._newcomer = what
        elif what.phase is JobPhase.PROLOG:
            self._end_prologs(what, set(what.timed))
            return False
        elif what.phase is JobPhase.RUNNING:
            self._finish(what)
        elif what.phase is JobPhase.COMPLETING:
            self._give_back(what)
            what.phase, what.due = JobPhase.ENDED, NEVER
        return True

    def _enqueue(self, run: Run) -> None:
        run.due = NEVER
        insort(self._queue, run, key=lambda waiting: (waiting.job.submit, waiting.job.id))

    def _start(self, run: Run, nodes: tuple[int, ...]) -> None:
        if self._free[: len(nodes)] == list(nodes):
            del self._free[: len(nodes)]
        else:
            self._free = sorted(set(self._free).difference(nodes))
        run.phase, run.nodes, run.began = JobPhase.PROLOG, nodes, self._now
        run.order = next(self._serial)
        for node in nodes:
            self._hosts[node].run = run
        self._set_limit(run, self._now + run.job.limit)
        self._begin_prologs(run)

    def _begin_prologs(self, run: Run) -> None:
        found: Mapping[NodeName, float | None] = {}
        if self._prolog is not None:
            found = self._prolog(run.job, [self._hosts[node].machine.name for node in run.nodes])
        if not found:
            run.timed = _NONE
            run.prologs = set()
            self._end_prologs(run, run.prologs)
            return
        seconds = {self._places[name]: lasts for name, lasts in found.items()}
        run.prologs = {node for node, lasts in seconds.items() if lasts != 0}
        timed = {node: lasts for node, lasts in seconds.items() if lasts}
        run.timed = frozenset(timed)
        if timed:
            run.due = run.over = self._now + max(timed.values())
            self._push(run.due, RUN, run)
        self._end_prologs(run, set())

    def _end_prologs(self, run: Run, nodes: set[int]) -> None:
        run.prologs -= nodes
        if run.phase is JobPhase.PROLOG and not run.prologs:
            run.first = self._now
            self._go_on(run, min(run.job.runtime, run.job.limit))

    def _go_on(self, run: Run, seconds: float) -> None:
        ran = min(run.job.runtime, run.job.limit) - seconds
        run.phase, run.due = JobPhase.RUNNING, self._now + seconds
        limit = self._now + run.job.limit - ran
        self._moved = self._moved or limit != run.limit
        self._set_limit(run, limit)
        self._push(run.due, RUN, run)

    def _finish(self, run: Run) -> None:
        run.phase, run.ended = JobPhase.COMPLETING, self._now
        if self._completing:
            run.due = self._now + self._completing
            self._set_limit(run, run.due)
            self._push(run.due, RUN, run)
        else:
            self._give_back(run)
            run.phase, run.due = JobPhase.ENDED, NEVER

    def _give_back(self, run: Run) -> None:
        self._set_limit(run, NEVER)
        for node in run.nodes:
            self._hosts[node].run = None
        if self._left is not None:
            self._left([self._hosts[node].machine.name for node in run.nodes])
        back = self._open(run.nodes)
        self._free = sorted([*self._free, *back])

    def _set_limit(self, run: Run, limit: float) -> None:
        if run.limit == limit:
            return
        if run.limit != NEVER:
            del self._limits[bisect_left(self._limits, (run.limit, run.job.id))]
        if limit != NEVER:
            insort(self._limits, (limit, run.job.id))
        run.limit = limit

    def _recount(self, nodes: Iterable[NodeName], *, schedule: bool = True) -> None:
        """Bring the list of free nodes into line with what is true of these."""
        changed = {self._places[node] for node in nodes}
        self._closed -= changed
        self._closed |= {node for node in changed if self._hosts[node].is_closed(self._now)}
        back = [node for node in self._open(changed) if self._hosts[node].run is None]
        self._free = sorted([*(node for node in self._free if node not in changed), *back])
        if schedule:
            self._schedule()

    def _schedule(self) -> None:
        newcomer, self._newcomer = self._newcomer, None
        if not self._queue:
            return
        if self._discipline is Discipline.CONSERVATIVE:
            self._keep_promises()
        elif self._free and (newcomer is None or newcomer.want.nodes <= len(self._free)):
            self._moved = False
            self._serve()

    def _serve(self) -> None:
        """Start whom the order of the queue and backfill let start."""
        started = 0
        for run in self._queue:
            if run.want.nodes > len(self._free):
                break
            nodes = choose(run.want, self._fits(run.want, self._free))
            if nodes is None:
                break
            self._start(run, nodes)
            started += 1
        del self._queue[:started]
        if self._discipline is Discipline.FCFS or len(self._queue) < 2 or not self._free:
            return
        room = len(self._free)
        waiting = [run for run in self._queue[1:] if run.want.nodes <= room]
        if waiting:
            wants = [run.want for run in waiting]
            chosen = backfill(self._now, wants, self._free, self._held(), self._fits)
            self._start_all({waiting[n].job.id: nodes for n, nodes in chosen.items()})

    def _keep_promises(self) -> None:
        """Start whose time has come, and tell the others when theirs will."""
        ends = [(at, len(self._open(self._runs[run].nodes))) for at, run in self._limits]
        wants = [run.want for run in self._queue]
        promised = [run.promised for run in self._queue]
        free = list(self._free)
        chosen: dict[int, tuple[int, ...]] = {}
        for run, at in zip(
            self._queue, promise(self._now, len(free), ends, wants, promised), strict=True
        ):
            run.promised = at
            nodes = choose(run.want, self._fits(run.want, free)) if at <= self._now else None
            if nodes is not None:
                chosen[run.job.id] = nodes
                free = sorted(set(free).difference(nodes))
        self._start_all(chosen)

    def _start_all(self, chosen: Mapping[int, tuple[int, ...]]) -> None:
        if chosen:
            waiting = self._queue
            self._queue = [run for run in waiting if run.job.id not in chosen]
            for run in waiting:
                if run.job.id in chosen:
                    self._start(run, chosen[run.job.id])

    def _held(self) -> Shadow | None:
        if not self._queue:
            return None
        want = self._queue[0].want
        runs = self._runs
        ends: Iterator[tuple[float, Collection[int]]]
        ends = ((at, runs[run].nodes) for at, run in self._limits)
        if self._closed:
            ends = ((at, self._open(nodes)) for at, nodes in ends)
        return shadow(want, self._fits(want, self._free), ends)

    def _open(self, nodes: Collection[int]) -> Collection[int]:
        """Leave out nodes on which nothing may start."""
        return [node for node in nodes if node not in self._closed] if self._closed else nodes

    def _fits(self, want: Want, nodes: Sequence[int]) -> Sequence[int]:
        """Leave out nodes that a reservation takes before the job's limit."""
        end = self._now + want.limit
        if not self._reservations:
            return nodes
        return [node for node in nodes if self._hosts[node].free_until() >= end]
