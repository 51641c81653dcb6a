"""What PBS does: jobs get vnodes, wait, are suspended and end.  Deterministic, no I/O.

First come first served within a queue, with backfill around the expected starts of the
first jobs that wait (``strict_ordering`` with ``backfill_depth``).
"""

import re
from collections.abc import Iterator

from adapters.mock_pbs.nouns import QUEUES, Chunk, Cluster, Job, Reservation, Vnode
from adapters.mock_pbs.schedule import NEVER, end_of, expect, room, victims

_UNITS = {"": 0, "kb": 0, "mb": 10, "gb": 20}
#: Substates of jobs that the scheduler has suspended, and is about to requeue.
_PREEMPTED, _REQUEUED = 45, 60


class RefusedError(Exception):
    """PBS says no; the text is its own."""


class Model:
    """A cluster under PBS at a moment."""

    def __init__(self, cluster: Cluster, now: float) -> None:
        self.cluster = cluster
        self.now = now

    # -- what users and operators do ------------------------------------------

    def submit(
        self,
        *,
        name: str = "STDIN",
        owner: str = "alice",
        queue: str = "workq",
        select: str = "1:ncpus=1",
        place: str = "free",
        walltime: int | None = None,
        held: bool = False,
        rerunnable: bool = True,
        arguments: str = "",
    ) -> Job:
        """Enqueue a job."""
        if queue not in QUEUES:
            raise RefusedError(f"Unknown queue {queue}")
        job = Job(
            number=self.cluster.next_job,
            name=name,
            owner=owner,
            queue=queue,
            select=select,
            place=place,
            asked=parse_select(select),
            walltime=walltime,
            state="H" if held else "Q",
            substate=20 if held else 10,
            hold="u" if held else "n",
            created=self.now,
            modified=self.now,
            arguments=arguments,
            rerunnable=rerunnable,
        )
        self.cluster.next_job += 1
        self.cluster.jobs.append(job)
        self.cycle()
        return job

    def delete(self, number: int) -> None:
        """End a job, or take it out of the queue."""
        job = self.job(number)
        self._release(job)
        self.cluster.jobs.remove(job)
        self.cycle()

    def suspend(self, number: int) -> None:
        """Stop a running job where it is: it gives back its cores and leaves its lists."""
        job = self.job(number)
        if job.state == "R":
            job.state, job.substate, job.modified = "S", 43, self.now
            self._touch(job)
            self.cycle()

    def resume(self, number: int) -> None:
        """Let a suspended job go on where it was stopped, if its cores are free."""
        job = self.job(number)
        if job.state != "S":
            return
        job.state = "R"
        names = {chunk.vnode for chunk in job.has}
        if any(self.taken(name) > self.vnode(name).ncpus for name in names):
            job.state = "S"
            return
        job.substate, job.modified = 42, self.now
        self._touch(job)

    def hold(self, number: int, kind: str = "u") -> None:
        """Let a waiting job wait longer."""
        job = self.job(number)
        job.hold = kind
        if job.state == "Q":
            job.state, job.substate, job.expected, job.planned = "H", 20, None, []
        self.cycle()

    def release(self, number: int) -> None:
        """Let a held job start again."""
        job = self.job(number)
        job.hold = "n"
        if job.state == "H":
            job.state, job.substate = "Q", 10
        self.cycle()

    def mark(self, host: str, *, offline: bool | None = None, down: bool | None = None) -> None:
        """Take a host out of service or put it back, with all its vnodes."""
        found = [vnode for vnode in self.cluster.vnodes if host in {vnode.name, vnode.host}]
        if not found:
            raise RefusedError("Unknown node")
        for vnode in found:
            vnode.offline = vnode.offline if offline is None else offline
            vnode.down = vnode.down if down is None else down
            vnode.changed = self.now
        self.cycle()

    def reserve(self, *vnodes: str, begin: float, seconds: int, maintenance: bool) -> Reservation:
        """Set whole vnodes aside."""
        letter = "M" if maintenance else "R"
        made = Reservation(
            name=f"{letter}{self.cluster.next_job}.{self.cluster.server}",
            owner="alice",
            begin=begin,
            seconds=seconds,
            has=[Chunk(ncpus=self.vnode(name).ncpus, vnode=name) for name in vnodes],
            maintenance=maintenance,
            created=self.now,
        )
        self.cluster.next_job += 1
        self.cluster.reservations.append(made)
        self.cycle()
        return made

    # -- the scheduler ------------------------------------------------------------

    def cycle(self) -> None:
        """End what is over, start what fits, and say when the first of the others will."""
        for job in [job for job in self.cluster.jobs if self._over(job)]:
            self._release(job)
            self.cluster.jobs.remove(job)
        self.cluster.reservations = [r for r in self.cluster.reservations if r.end > self.now]
        for job in [job for job in self.cluster.jobs if (job.dies or NEVER) <= self.now]:
            self._preempted(job)
        if any(job.dies is not None for job in self.cluster.jobs):
            # Nothing starts anywhere until the last victim is gone.
            return
        while self._serve():
            pass
        for job in [job for job in self.cluster.jobs if job.substate == _PREEMPTED]:
            self.resume(job.number)

    def _serve(self) -> bool:
        """Start what fits; return whether jobs were suspended, so that more fits now."""
        kept: list[Job] = []
        for job in self._waiting():
            job.expected, job.planned = None, []
            chunks = room(self.cluster, job, self.now, kept)
            if chunks is not None:
                self._start(job, chunks)
            elif found := victims(self.cluster, job, self.now):
                self._preempt(found)
                return self.cluster.preempt_order == "S"
            else:
                self._keep_waiting(job, kept)
        return False

    def _keep_waiting(self, job: Job, kept: list[Job]) -> None:
        job.comment = "Not Running: Not enough free nodes available"
        if len(kept) < self.cluster.backfill_depth:
            found = expect(self.cluster, job, kept)
            if found is not None:
                job.expected, job.planned = found
                kept.append(job)

    def _preempt(self, victims_of_one: list[Job]) -> None:
        for job in victims_of_one:
            job.modified = self.now
            if self.cluster.preempt_order == "S":
                job.state, job.substate = "S", _PREEMPTED
                self._touch(job)
            else:
                job.dies = self.now + self.cluster.kill_delay
                if self.cluster.preempt_order == "R":
                    job.substate = _REQUEUED

    def _preempted(self, job: Job) -> None:
        self._release(job)
        if self.cluster.preempt_order == "D":
            self.cluster.jobs.remove(job)
            return
        job.state, job.substate, job.exit_status = "Q", 10, -11
        job.died, job.modified, job.dies = self.now, self.now, None
        job.has, job.slots, job.started = [], [], None

    def _waiting(self) -> list[Job]:
        waiting = [job for job in self.cluster.jobs if job.state == "Q"]
        return sorted(waiting, key=lambda job: (-QUEUES[job.queue], job.number))

    def _over(self, job: Job) -> bool:
        return job.state == "R" and job.dies is None and end_of(job, job.started) <= self.now

    def _start(self, job: Job, chunks: list[Chunk]) -> None:
        job.state, job.substate, job.started, job.modified = "R", 42, self.now, self.now
        job.runs += 1
        job.slots = self._slots(chunks)
        job.has = chunks
        self._touch(job)
        for chunk in chunks:
            vnode = self.vnode(chunk.vnode)
            if chunk.ngpus and "ngpus" not in vnode.ever:
                vnode.ever.append("ngpus")

    def _release(self, job: Job) -> None:
        if job.holds:
            for chunk in job.has:
                self.vnode(chunk.vnode).used = self.now
            self._touch(job)

    def _touch(self, job: Job) -> None:
        """Note that the state of its vnodes changes, when all or nothing is left of them."""
        for chunk in job.has:
            vnode = self.vnode(chunk.vnode)
            if self.taken(vnode.name) == vnode.ncpus or chunk.ncpus == vnode.ncpus:
                vnode.changed = self.now

    def _slots(self, chunks: list[Chunk]) -> list[int]:
        """Return the first numbers that nobody has on the host of each chunk."""
        taken = {
            (self.vnode(chunk.vnode).host, slot)
            for job in self.cluster.jobs
            if job.holds
            for chunk, slot in zip(job.has, job.slots, strict=False)
        }
        slots = []
        for chunk in chunks:
            host = self.vnode(chunk.vnode).host
            slot = next(n for n in range(len(taken) + 1) if (host, n) not in taken)
            taken.add((host, slot))
            slots.append(slot)
        return slots

    # -- what can be seen ------------------------------------------------------------

    def job(self, number: int) -> Job:
        """Return a job."""
        for job in self.cluster.jobs:
            if job.number == number:
                return job
        raise RefusedError("Unknown Job Id")

    def vnode(self, name: str) -> Vnode:
        """Return a vnode."""
        return next(vnode for vnode in self.cluster.vnodes if vnode.name == name)

    def taken(self, vnode: str) -> int:
        """Return how many of its cores running jobs have."""
        return sum(chunk.ncpus for _, chunk in self.shares(vnode))

    def shares(self, vnode: str) -> Iterator[tuple[Job, Chunk]]:
        """Yield what running jobs have of it; suspended ones are not listed."""
        for job in self.cluster.jobs:
            for chunk in job.has if job.state == "R" else ():
                if chunk.vnode == vnode:
                    yield job, chunk

    def reserved(self, vnode: str) -> list[Reservation]:
        """Return the reservations that name the vnode."""
        return [r for r in self.cluster.reservations if vnode in {c.vnode for c in r.has}]

    def reserved_now(self, vnode: str) -> list[Reservation]:
        """Return those of them that are on."""
        return [r for r in self.reserved(vnode) if r.begin <= self.now]


def parse_select(text: str) -> list[Chunk]:
    """Read ``2:ncpus=2:mem=3gb+1:ncpus=4:vnode=n1``."""
    chunks: list[Chunk] = []
    for part in text.split("+"):
        number, *words = part.split(":")
        if not number.isdigit():
            number, words = "1", [number, *words]
        pairs = dict(word.split("=", 1) for word in words)
        chunk = Chunk(
            ncpus=int(pairs.get("ncpus", "1")),
            mem_kb=size_kb(pairs.get("mem", "0")),
            ngpus=int(pairs.get("ngpus", "0")),
            vnode=pairs.get("vnode", pairs.get("host", "")),
        )
        chunks += [chunk] * int(number)
    return chunks


def size_kb(text: str) -> int:
    """Read a size such as ``3gb``."""
    found = re.fullmatch(r"(\d+)(kb|mb|gb|)", text)
    if found is None:
        raise RefusedError("Illegal attribute or resource value")
    return int(found[1]) << _UNITS[found[2]]
