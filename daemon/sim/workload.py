"""What is replayed: the priority jobs of a cluster, or the gaps that were seen on one."""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import gcd


class TraceError(Exception):
    """A trace cannot be replayed; the text says which, where, and what to do."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A priority job of a trace.  Moments are seconds, of whatever clock the trace has."""

    id: str
    submit: float
    processors: int
    #: How long it ran, and how long it was allowed to.
    runtime: float
    limit: float
    #: Its start in the record; None is not known.
    began: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Priority jobs in order of submission, and the cluster that they are for."""

    name: str
    jobs: tuple[TraceJob, ...]
    #: Whole nodes, each of so many processors.
    nodes: int
    cores_per_node: int
    #: Rows that are no jobs: without processors, a runtime or a limit, or too large.
    dropped: int = 0
    #: What was guessed, a sentence each.
    guesses: tuple[str, ...] = ()

    def nodes_of(self, job: TraceJob) -> int:
        """Return how many whole nodes the job takes."""
        return -(-job.processors // self.cores_per_node)


@dataclass(frozen=True, slots=True)
class Gap:
    """A node that was seen idle."""

    node: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """All gaps of a cluster, in order of their begins."""

    name: str
    gaps: tuple[Gap, ...]
    begin: float
    end: float
    cores_per_node: int = 1


Trace = Workload | Samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What whoever replays a trace says about its cluster; None is guessed."""

    nodes: int | None = None
    cores_per_node: int | None = None


@dataclass(slots=True)
class Rows:
    """The usable jobs of a trace while it is read."""

    jobs: list[TraceJob] = field(default_factory=list)
    dropped: int = 0

    def add(
        self,
        name: str,
        *,
        submit: float,
        processors: int,
        runtime: float,
        limit: float,
        began: float | None = None,
    ) -> None:
        """
        Take a job, or count it as dropped when it has no processors, runtime or limit.

        What ran over its limit was ended there, and planned for as long as it ran.
        """
        if processors <= 0 or runtime <= 0 or limit <= 0:
            self.dropped += 1
            return
        job = TraceJob(
            id=name,
            submit=submit,
            processors=processors,
            runtime=min(runtime, limit),
            limit=max(runtime, limit),
            began=began,
        )
        self.jobs.append(job)


def assemble(name: str, rows: Rows, shape: Shape, *, processors: int | None = None) -> Workload:
    """
    Return the workload for a cluster of the given or guessed shape.

    Args:
        processors: of the whole cluster, where the trace says so.

    Raises:
        TraceError: no job is left.
    """
    guesses = []
    cores = shape.cores_per_node
    if cores is None:
        cores = 1 if processors is None else _grain(rows.jobs, processors)
        if cores > 1:
            guesses.append(f"nodes of {cores} processors: every job has a multiple of that")
    nodes = shape.nodes
    if nodes is None:
        if processors is None:
            guesses.append("as many nodes as were in use at once at most; --nodes says better")
        nodes = (processors or peak(rows.jobs)) // cores
    jobs = [job for job in rows.jobs if -(-job.processors // cores) <= nodes]
    if not jobs:
        raise TraceError(f"{name} has no job that a cluster of {nodes} nodes could run")
    # Sorting is stable: jobs of the same moment stay in the order of the file.
    jobs.sort(key=lambda job: job.submit)
    return Workload(
        name=name,
        jobs=tuple(jobs),
        nodes=nodes,
        cores_per_node=cores,
        dropped=rows.dropped + len(rows.jobs) - len(jobs),
        guesses=tuple(guesses),
    )


def peak(jobs: Iterable[TraceJob]) -> int:
    """Return how many processors were in use at once at most, as the jobs were recorded."""
    most = used = 0
    ends: list[tuple[float, int]] = []
    for job in sorted(jobs, key=_began):
        while ends and ends[0][0] <= _began(job):
            used -= heapq.heappop(ends)[1]
        heapq.heappush(ends, (_began(job) + job.runtime, job.processors))
        used += job.processors
        most = max(most, used)
    return most


def _began(job: TraceJob) -> float:
    return job.submit if job.began is None else job.began


def _grain(jobs: list[TraceJob], processors: int) -> int:
    """Return the largest number that divides all jobs' processors and the cluster's."""
    grain = processors
    for job in jobs:
        grain = gcd(grain, job.processors)
    return grain or 1
