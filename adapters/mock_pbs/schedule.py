"""Which vnodes a job gets, and from when on.  Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from adapters.mock_pbs.nouns import Chunk, Cluster, Job, Vnode

NEVER = float("inf")


def end_of(job: Job, start: float | None) -> float:
    """Return when a job's time is up that starts, or started, then."""
    return NEVER if job.walltime is None or start is None else start + job.walltime


def room(cluster: Cluster, job: Job, at: float, kept: Iterable[Job]) -> list[Chunk] | None:
    """Return vnodes that the job can have from then on to its end, or None."""
    free = _free(cluster, at, end_of(job, at), kept)
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


def _free(cluster: Cluster, at: float, until: float, kept: Iterable[Job]) -> dict[str, int]:
    """Return the cores that are free all the time from ``at`` to ``until``, by vnode."""
    free = {
        vnode.name: vnode.ncpus
        for vnode in cluster.vnodes
        if not (vnode.down or vnode.offline or vnode.maintenance)
    }
    for name, cores in _taken(cluster, at, until, kept):
        if name in free:
            free[name] = 0 if cores is None else max(free[name] - cores, 0)
    return free


def _taken(
    cluster: Cluster, at: float, until: float, kept: Iterable[Job]
) -> Iterator[tuple[str, int | None]]:
    """Yield what others have of vnodes in that time; None is all."""
    for reservation in cluster.reservations:
        if reservation.begin < until and reservation.end > at:
            yield from ((chunk.vnode, None) for chunk in reservation.has)
    for job in cluster.jobs:
        if job.state == "R" and end_of(job, job.started) > at:
            yield from ((c.vnode, None if "excl" in job.place else c.ncpus) for c in job.has)
    for job in kept:
        if job.expected is not None and job.expected < until and end_of(job, job.expected) > at:
            yield from ((c.vnode, None if "excl" in job.place else c.ncpus) for c in job.planned)
