"""One deterministic cluster: nodes, priority jobs, and a time that moves only when told to.

No I/O, no clock, no randomness.  Whole nodes are given out first come first served, with
EASY or conservative backfill if wanted.  It goes from event to event, so traces of years are
a matter of seconds.  The adapter of the mock batch system and the simulator share it.
"""

import heapq
from bisect import insort
from collections.abc import Iterator

from adapters.mock_slurm.cluster import RESERVATION, RUN, Cluster
from adapters.mock_slurm.nouns import (
    JobPhase,
    JobView,
    MachineView,
    Planned,
    PriorityJob,
    Reservation,
)
from adapters.mock_slurm.parts import NEVER, Run
from adapters.mock_slurm.schedule import Want
from daemon.core.types import NodeName


class Model(Cluster):
    """A cluster under virtual time."""

    # What an operator does

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
        self._push(max(reservation.begin, self._now), RESERVATION, reservation)
        self._push(reservation.end, RESERVATION, reservation)
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
        self._push(run.due, RUN, run)

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
