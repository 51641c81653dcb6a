"""One deterministic cluster: nodes, priority jobs, and a time that moves only when told to.

No I/O, no clock, no randomness.  Whole nodes are given out first come first served, with
EASY or conservative backfill if wanted.  It goes from event to event, so traces of years are
a matter of seconds.  The adapter of the mock batch system and the simulator share it.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count

from adapters.mock_slurm.agenda import promise
from adapters.mock_slurm.nouns import (
    Discipline,
    JobPhase,
    JobView,
    Machine,
    MachineView,
    Planned,
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
_EARLY, _RESERVATION, _RUN, _LATE = range(4)

_NONE: frozenset[int] = frozenset()

_Event = tuple[float, int, int, int, Run | Reservation]


class Model:
    """A cluster under virtual time."""

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
        self._submit_rank = _EARLY if pass_per_event else _LATE
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
        self._events: list[_Event] = []
        #: A job that was submitted, where nothing else has changed since the last pass.
        self._newcomer: Run | None = None
        #: The limit of a running job is another since the last pass.
        self._moved = False
        self._serial = count()
        #: How many have not ended.
        self._reservations = 0
        for machine in machines:
            self.add_node(machine)

    # What an operator does

    def add_node(self, machine: Machine) -> None:
        """Put a new node into service."""
        if machine.name in self._places:
            raise ValueError(f"there is a node {machine.name} already")
        self._places[machine.name] = len(self._hosts)
        self._hosts.append(Host(machine))
        self._recount([machine.name])

    def drain(self, node: NodeName, *, drained: bool = True) -> None:
        """Let nothing new start on a node, or lift that."""
        self._host(node).drained = drained
        self._recount([node])

    def down(self, node: NodeName, *, down: bool = True) -> None:
        """Lose a node, whose job goes back into the queue; or get it back."""
        host = self._host(node)
        host.down = down
        run = host.run
        if down and run is not None:
            self._give_back(run)
            if run.phase is JobPhase.COMPLETING:
                run.phase, run.due = JobPhase.ENDED, NEVER
            else:
                run.forget()
                self._enqueue(run)
        self._recount([node])

    def reserve(self, reservation: Reservation) -> None:
        """Take nodes out of the schedule for a time; what runs there goes on."""
        if reservation.end <= max(reservation.begin, self._now):
            raise ValueError("a reservation ends after its begin, and not in the past")
        for node in reservation.nodes:
            insort(self._host(node).reservations, reservation, key=lambda known: known.begin)
        self._reservations += 1
        self._push(max(reservation.begin, self._now), _RESERVATION, reservation)
        self._push(reservation.end, _RESERVATION, reservation)
        self._recount(reservation.nodes)

    # What users do

    def submit(self, job: PriorityJob) -> None:
        """Let a priority job enter the queue at its time, or now when that is past."""
        if job.id in self._runs:
            raise ValueError(f"there is a job {job.id} already")
        if job.nodes < 1 or (job.named and len(set(job.named)) != job.nodes):
            raise ValueError("a job needs a node at least, and names all or none")
        named = tuple(sorted(self._places[node] for node in job.named))
        run = self._runs[job.id] = Run(job, Want(job.nodes, job.limit, named))
        run.due = max(job.submit, self._now)
        self._push(run.due, self._submit_rank, run)

    def end(self, job: int) -> None:
        """End a priority job now, whatever it does."""
        run = self._runs[job]
        if run.phase is JobPhase.PENDING:
            self._queue = [waiting for waiting in self._queue if waiting is not run]
            run.phase, run.ended, run.due = JobPhase.ENDED, self._now, NEVER
        elif run.phase not in {JobPhase.COMPLETING, JobPhase.ENDED}:
            self._finish(run)
        self._schedule()

    def suspend(self, job: int) -> None:
        """Stop a running priority job where it is; it keeps its nodes."""
        run = self._runs[job]
        if run.phase is JobPhase.RUNNING:
            run.phase, run.left = JobPhase.SUSPENDED, run.due - self._now
            self._set_limit(run, NEVER)
            run.due = NEVER

    def resume(self, job: int) -> None:
        """Let a suspended priority job go on."""
        run = self._runs[job]
        if run.phase is JobPhase.SUSPENDED:
            self._go_on(run, run.left)

    def finish_prolog(self, job: int, *nodes: NodeName, at: float | None = None) -> None:
        """
        End the prologs of a job on these nodes, now or then; after the last one it begins.

        What is told here counts for the prologs that had no end.
        """
        run, places = self._runs[job], {self._places[node] for node in nodes}
        if at is None or at <= self._now:
            self._end_prologs(run, places)
            return
        run.timed |= places
        run.due = run.over = max(run.over, at)
        self._push(run.due, _RUN, run)

    # Time

    @property
    def now(self) -> float:
        return self._now

    def next_event(self) -> float | None:
        """Return the moment of the next change that is certain already, or None."""
        while self._events and self._is_void(self._events[0]):
            heapq.heappop(self._events)
        return self._events[0][0] if self._events else None

    def advance_to(self, moment: float) -> None:
        """Let everything happen that happens until then, that moment included."""
        if moment < self._now:
            raise ValueError("time does not go back")
        events = self._events
        while events and events[0][0] <= moment:
            at = self._now = max(events[0][0], self._now)
            changed = False
            while events and events[0][0] <= at:
                event = heapq.heappop(events)
                if not self._is_void(event):
                    changed = self._happen(event[1], event[4]) or changed
                    if self._pass_per_event:
                        break
            if changed:
                self._schedule()
        self._now = moment

    # What can be seen

    def machines(self) -> Iterator[MachineView]:
        """Yield every node, in the order in which they were added."""
        return (host.view(self._now) for host in self._hosts)

    def jobs(self) -> Iterator[JobView]:
        """Yield every priority job that was ever submitted."""
        return (run.view(self._hosts) for run in self._runs.values())

    def job(self, job: int) -> JobView:
        """Return one priority job."""
        return self._runs[job].view(self._hosts)

    def times(self) -> Iterator[tuple[PriorityJob, float | None, float | None, float | None]]:
        """Yield every priority job with when it got its nodes, when it began and when it ended."""
        return ((run.job, run.began, run.first, run.ended) for run in self._runs.values())

    def planned(self) -> Planned | None:
        """Return where and when the first job that waits is expected to start."""
        held = self._held()
        if held is None:
            return None
        names = frozenset(self._hosts[node].name for node in held.nodes)
        return Planned(job=self._queue[0].job, at=max(held.at, self._now), nodes=names)

    # Inside

    def _host(self, node: NodeName) -> Host:
        return self._hosts[self._places[node]]

    def _push(self, at: float, kind: int, what: Run | Reservation) -> None:
        order = what.order if isinstance(what, Run) else 0
        heapq.heappush(self._events, (at, kind, order, next(self._serial), what))

    @staticmethod
    def _is_void(event: _Event) -> bool:
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
            self._push(run.due, _RUN, run)
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
        self._push(run.due, _RUN, run)

    def _finish(self, run: Run) -> None:
        run.phase, run.ended = JobPhase.COMPLETING, self._now
        if self._completing:
            run.due = self._now + self._completing
            self._set_limit(run, run.due)
            self._push(run.due, _RUN, run)
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
