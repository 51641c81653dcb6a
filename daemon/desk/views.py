"""Nouns to the documents that callers read."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from statistics import median

from daemon.api.schemas import (
    CheckpointView,
    ClaimView,
    EventView,
    EvictionsView,
    FigureView,
    JobDetail,
    JobView,
    MountRequest,
    NodeView,
    SegmentView,
    ShadowView,
)
from daemon.core.limits import closed
from daemon.core.policy import Policy
from daemon.core.shadow import Shadow
from daemon.core.types import (
    PLACED,
    TERMINAL,
    Checkpoint,
    CheckpointMode,
    Generation,
    Job,
    JobState,
    Movable,
    Node,
    NodeName,
    NodeState,
    Segment,
    Snapshot,
)
from daemon.core.wanted import wants
from daemon.store import EvictionRecord, HistoryLine


def job_view(job: Job, now: datetime) -> JobView:
    """Return one line of the queue."""
    running = job.segment if job.segment is not None and job.state in PLACED else None
    ran = job.ran
    if running is not None and job.state not in {JobState.STARTING, JobState.RESUMING}:
        ran += now - running.started
    return JobView(
        id=job.id,
        name=job.spec.name,
        user=job.spec.owner.name or str(job.spec.owner.uid),
        state=job.state,
        reason=job.reason,
        node=None if running is None else running.node,
        cpus=job.spec.cpus,
        mem_mib=job.spec.memory_mib,
        exit_code=job.exit_code,
        submitted=job.submitted,
        started=job.started,
        ended=job.ended,
        run_seconds=round(ran.total_seconds(), 3),
        lost_seconds=round(job.lost.total_seconds(), 3),
        evictions=job.evictions,
        migrations=job.migrations,
        image=job.spec.image,
        command=list(job.spec.command),
        checkpoint=job.spec.checkpoint,
        movable=_movable(job),
        movable_why=_movable_why(job),
    )


def _movable(job: Job) -> Movable:
    return job.movable if job.spec.checkpoint is CheckpointMode.CRIU else Movable.NO


def _movable_why(job: Job) -> str:
    match job.spec.checkpoint:
        case CheckpointMode.SIGNAL:
            return "declared --checkpoint signal: it saves itself, and is started again elsewhere"
        case CheckpointMode.NONE:
            return "declared --checkpoint none: it is started again from the beginning elsewhere"
    if job.movable is Movable.UNKNOWN and job.state not in TERMINAL:
        return "it has had no checkpoint yet"
    return job.movable_why


def job_detail(
    job: Job,
    now: datetime,
    segments: Sequence[Segment],
    checkpoints: Sequence[Checkpoint],
    history: Sequence[HistoryLine],
    *,
    where: Mapping[Generation, tuple[NodeName, ...]],
) -> JobDetail:
    """Return a job with its history."""
    limit, every = job.spec.time_limit, job.spec.checkpoint_every
    return JobDetail(
        **job_view(job, now).model_dump(),
        mounts=[
            MountRequest(source=m.source, target=m.target, read_only=m.read_only)
            for m in job.spec.mounts
        ],
        workdir=job.spec.workdir,
        time_seconds=None if limit is None else limit.total_seconds(),
        output=job.spec.output,
        image_digest=job.image_digest,
        checkpoint_every_seconds=None if every is None else every.total_seconds(),
        after_crash=job.spec.after_crash,
        results=list(job.spec.results),
        changed_files=list(job.changed_files),
        segments=[_segment(segment) for segment in segments],
        checkpoints=[_checkpoint(found, where.get(found.generation, ())) for found in checkpoints],
        events=[
            EventView(
                time=line.time, event=line.event, state=JobState(line.state), reason=line.reason
            )
            for line in history
        ],
    )


def _segment(segment: Segment) -> SegmentView:
    return SegmentView(
        epoch=segment.epoch,
        node=segment.node,
        started=segment.started,
        ended=segment.ended,
        outcome=segment.outcome,
        resumed_from=segment.resumed_from,
    )


def _checkpoint(checkpoint: Checkpoint, nodes: tuple[NodeName, ...]) -> CheckpointView:
    return CheckpointView(
        generation=checkpoint.generation,
        time=checkpoint.time,
        bytes=checkpoint.size_bytes,
        written_bytes=checkpoint.written_bytes,
        plain_bytes=checkpoint.plain_bytes,
        seconds=round(checkpoint.seconds, 3),
        kind=checkpoint.kind,
        nodes=list(nodes),
    )


def node_views(snapshot: Snapshot, policy: Policy) -> list[NodeView]:
    """Return all nodes with the reason why no job is put there now."""
    if snapshot.cluster is None:
        return []
    wanted = wants(snapshot, policy)
    return [
        _node_view(
            node,
            snapshot,
            wanted[name].reason if name in wanted else closed(snapshot, policy),
        )
        for name, node in sorted(snapshot.cluster.nodes.items())
    ]


def _node_view(node: Node, snapshot: Snapshot, wanted: str) -> NodeView:
    engine = snapshot.engines.get(node.name)
    claims = [*node.claims, *(c for c in snapshot.claims if c.node == node.name)]
    return NodeView(
        name=node.name,
        state=node.state,
        words=node.words,
        cpus=node.cpus,
        memory_mib=node.memory_mib,
        partitions=list(node.partitions),
        fit=engine is not None and engine.reachable and engine.fit,
        reachable=engine is not None and engine.reachable,
        drained=node.name in snapshot.drained,
        panicked=node.name in snapshot.panicked,
        gone=node.name in snapshot.gone,
        reason=_reason(node, snapshot, wanted),
        jobs=_jobs_on(node.name, snapshot),
        claims=[
            ClaimView(source=c.source, at=c.at, deadline=c.deadline, detail=c.detail)
            for c in claims
        ],
    )


def _reason(node: Node, snapshot: Snapshot, wanted: str) -> str:
    reason = wanted or _not_fillable(node, snapshot)
    if node.name in snapshot.drained and "drained" not in reason:
        return f"drained; {reason}"
    return reason


def _not_fillable(node: Node, snapshot: Snapshot) -> str:
    engine = snapshot.engines.get(node.name)
    if node.name in snapshot.gone:
        return "an administrator said that it is dead; used again when it answers and is clean"
    if engine is None:
        return "its engine has not been asked yet"
    if not engine.reachable or not engine.fit:
        return engine.why or "not probed yet"
    if node.state is not NodeState.IDLE:
        return f"the batch system says {node.words or node.state}"
    if node.name not in snapshot.settled:
        return "has not been idle long enough"
    return ""


def _jobs_on(node: NodeName, snapshot: Snapshot) -> list[int]:
    return sorted(
        job.id
        for job in snapshot.jobs
        if job.state in PLACED and job.segment is not None and job.segment.node == node
    )


def evictions_view(records: Sequence[EvictionRecord]) -> EvictionsView | None:
    """Return how fast the last evictions were."""
    if not records:
        return None
    return EvictionsView(
        count=len(records),
        freeze_seconds=_figure([record.freeze_seconds for record in records]),
        vacate_seconds=_figure([record.vacate_seconds for record in records]),
    )


def shadow_view(shadow: Shadow) -> ShadowView:
    """Return what would have been done so far."""
    return ShadowView(
        since=shadow.since,
        starts=shadow.starts,
        running=len(shadow.segments),
        evictions=dict(sorted(shadow.evictions.items())),
    )


def _figure(values: Sequence[float]) -> FigureView:
    return FigureView(p50=round(median(values), 3), max=round(max(values), 3))


def summary(snapshot: Snapshot, batch: str, trouble: str) -> str:
    """Return the daemon's state in one sentence, for systemd and for people."""
    if snapshot.cluster is None:
        return f"waiting for {batch}: {trouble}"
    states = Counter(node.state for node in snapshot.cluster.nodes.values())
    jobs = Counter(job.state for job in snapshot.jobs)
    running = sum(count for state, count in jobs.items() if state in PLACED)
    waiting = jobs[JobState.QUEUED] + jobs[JobState.PARKED]
    sentence = (
        f"{states[NodeState.IDLE]} of {len(snapshot.cluster.nodes)} nodes idle, "
        f"{running} jobs on nodes, {waiting} waiting"
    )
    if not trouble:
        return sentence
    age = age_seconds(snapshot)
    return f"{sentence}, as of {age:.0f} s ago; {batch} does not answer: {trouble}"


def age_seconds(snapshot: Snapshot) -> float | None:
    """Return how old the batch system's last answer is."""
    if snapshot.cluster is None:
        return None
    return round((snapshot.now - snapshot.cluster.taken).total_seconds(), 1)
