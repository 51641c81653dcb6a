"""What is known at one moment: jobs, nodes and priority jobs; and what has changed since."""

from collections.abc import Iterator
from dataclasses import dataclass

from daemon.api.client import Client, Document
from tests.demo.priority import PriorityJob, PriorityJobs

ENDED = frozenset({"completed", "failed", "cancelled", "timed_out"})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLook:
    """One of our jobs."""

    id: int
    name: str
    state: str
    node: str | None
    reason: str
    exit_code: int | None
    run_seconds: float
    lost_seconds: float
    evictions: int
    migrations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLook:
    """One node: the batch system's words, and ours."""

    name: str
    words: str
    jobs: tuple[int, ...]
    #: Why no job is put there; empty when one may be.
    reason: str
    claims: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Everything at one moment."""

    jobs: tuple[JobLook, ...]
    nodes: tuple[NodeLook, ...]
    priority: tuple[PriorityJob, ...]

    @property
    def ended(self) -> bool:
        return all(job.state in ENDED for job in self.jobs)

    @property
    def calm(self) -> bool:
        """Every job that has not ended runs, and no priority job does."""
        return all(job.state == "running" or job.state in ENDED for job in self.jobs) and all(
            one.ended is not None for one in self.priority
        )

    @property
    def free(self) -> tuple[str, ...]:
        """Nodes that would take a job now and hold none."""
        return tuple(node.name for node in self.nodes if not node.reason and not node.jobs)


def look(client: Client, priority: PriorityJobs) -> Picture:
    """
    Ask the daemon for the present picture.

    Raises:
        ClientError: it does not answer.
    """
    return Picture(
        jobs=tuple(_job(job) for job in client.jobs(ended=True)),
        nodes=tuple(_node(node) for node in client.nodes()),
        priority=priority.look(),
    )


def _job(document: Document) -> JobLook:
    return JobLook(**{name: document[name] for name in JobLook.__dataclass_fields__})


def _node(document: Document) -> NodeLook:
    return NodeLook(
        name=document["name"],
        words=document["words"] or document["state"],
        jobs=tuple(document["jobs"]),
        reason=document["reason"],
        claims=tuple(claim["source"] for claim in document["claims"]),
    )


def changes(client: Client, before: Picture, after: Picture) -> Iterator[str]:
    """Yield what has happened between two pictures, for people."""
    yield from _claims(before, after)
    known = {job.id: job for job in before.jobs}
    for job in after.jobs:
        old = known.get(job.id)
        if old is None or job == old:
            continue
        if job.migrations > old.migrations:
            yield _moved(job, client.job(job.id))
        elif job.state != old.state and (line := _news(job)):
            yield line


def _claims(before: Picture, after: Picture) -> Iterator[str]:
    known = {job.number: job for job in before.priority}
    for job in after.priority:
        old = known.get(job.number)
        if job.began is not None and (old is None or old.began is None):
            waited = job.began - job.sent
            yield f"priority job {job.number} runs on {job.node}, {waited:.1f} s after sbatch"


def _news(job: JobLook) -> str:
    match job.state:
        case "running":
            return f"{job.name} runs on {job.node}"
        case "parked":
            return f"{job.name} is saved"
        case "completed":
            return f"{job.name} has completed"
        case "failed" | "held" | "unreachable" | "timed_out" | "cancelled" | "queued":
            return f"{job.name} is {job.state}: {job.reason}"
        case _:
            return ""


def _moved(job: JobLook, detail: Document) -> str:
    left, now = detail["segments"][-2], detail["segments"][-1]
    saved = next((c for c in detail["checkpoints"] if c["generation"] == now["resumed_from"]), None)
    size = f": {_size(saved['bytes'])} saved in {saved['seconds']:.1f} s" if saved else ""
    return f"{job.name} has moved from {left['node']} to {now['node']}{size}"


def _size(count: int) -> str:
    return f"{count / 2**20:.0f} MiB" if count >= 2**20 else f"{count / 2**10:.0f} KiB"
