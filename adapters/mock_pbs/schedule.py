"""Which vnodes a job gets, and from when on.  Pure."""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace

from adapters.mock_pbs.nouns import EXPRESS, QUEUES, Chunk, Cluster, Job, Vnode

NEVER = float("inf")


def end_of(job: Job, start: float | None) -> float:
    """Return when a job's time is up that starts, or started, then."""
    return NEVER if job.walltime is None or start is None else start + job.walltime


def room(
    cluster: Cluster,
    job: Job,
    at: float,
    kept: Iterable[Job],
    without: Iterable[Job] = (),
) -> list[Chunk] | None:
    """
    Return vnodes that the job can have from then on to its end, or None.

    Args:
        kept: jobs whose expected starts are not to be spoilt.
        without: jobs that would be gone.
    """
    gone = {each.number for each in without}
    free = _free(cluster, at, end_of(job, at), kept, gone)
    found: list[Chunk] = []
    hosts: set[str] = set()
    for chunk in job.asked:
        vnode = next((v for v in cluster.vnodes if _fits(chunk, job, v, free, hosts)), None)
        if vnode is None:
            return None
        free[vnode.name] = 0 if "excl" in job.place else free[vnode.name] - chunk.ncpus
        if "scatter" in job.place:
            hosts.add(vnode.host)
        found.append(replace(chunk, vnode=vnode.name))
    return found


def expect(cluster: Cluster, job: Job, kept: list[Job]) -> tuple[float, list[Chunk]] | None:
    """Return the first end of something after which the job has its room, and where."""
    ends = {end_of(each, each.started) for each in cluster.jobs if each.state == "R"}
    ends |= {end_of(each, each.expected) for each in kept}
    ends |= {reservation.end for reservation in cluster.reservations}
    for moment in sorted(ends - {NEVER}):
        chunks = room(cluster, job, moment, kept)
        if chunks is not None:
            return moment, chunks
    return None


def _fits(chunk: Chunk, job: Job, vnode: Vnode, free: dict[str, int], hosts: set[str]) -> bool:
    left = free.get(vnode.name, 0)
    return (
        chunk.vnode in {"", vnode.name, vnode.host}
        and vnode.host not in hosts
        and chunk.ncpus <= left
        and chunk.mem_kb <= vnode.mem_kb
        and ("excl" not in job.place or left == vnode.ncpus)
    )


def victims(cluster: Cluster, job: Job, now: float) -> list[Job]:
    """Return the fewest jobs of lower queues that make room if they go, the youngest first."""
    if QUEUES[job.queue] < EXPRESS or not cluster.preempt_order:
        return []
    lower = [j for j in cluster.jobs if j.state == "R" and QUEUES[j.queue] < EXPRESS]
    lower.sort(key=lambda each: (-(each.started or 0.0), -each.number))
    chosen: list[Job] = []
    while room(cluster, job, now, (), chosen) is None:
        if not lower:
            return []
        chosen.append(lower.pop(0))
    for each in list(chosen):
        fewer = [other for other in chosen if other is not each]
        if room(cluster, job, now, (), fewer) is not None:
            chosen = fewer
    # All or nothing: one that cannot be requeued saves the others too.
    fits = cluster.preempt_order != "R" or all(each.rerunnable for each in chosen)
    return chosen if fits else []


def _free(
    cluster: Cluster, at: float, until: float, kept: Iterable[Job], gone: AbstractSet[int]
) -> dict[str, int]:
    """Return the cores that are free all the time from ``at`` to ``until``, by vnode."""
    free = {
        vnode.name: vnode.ncpus
        for vnode in cluster.vnodes
        if not (vnode.down or vnode.offline or vnode.maintenance)
    }
    for name, cores in _taken(cluster, at, until, kept, gone):
        if name in free:
            free[name] = 0 if cores is None else max(free[name] - cores, 0)
    return free


def _taken(
    cluster: Cluster, at: float, until: float, kept: Iterable[Job], gone: AbstractSet[int]
) -> Iterator[tuple[str, int | None]]:
    """Yield what others have of vnodes in that time; None is all."""
    for reservation in cluster.reservations:
        if reservation.begin < until and reservation.end > at:
            yield from ((chunk.vnode, None) for chunk in reservation.has)
    for job in cluster.jobs:
        if job.state == "R" and job.number not in gone and end_of(job, job.started) > at:
            yield from ((c.vnode, None if "excl" in job.place else c.ncpus) for c in job.has)
    for job in kept:
        if job.expected is not None and job.expected < until and end_of(job, job.expected) > at:
            yield from ((c.vnode, None if "excl" in job.place else c.ncpus) for c in job.planned)
