"""Rows to nouns and back."""

import json
from datetime import UTC, datetime, timedelta

from daemon.core.types import (
    Checkpoint,
    CheckpointKind,
    CheckpointMode,
    Epoch,
    Generation,
    Job,
    JobId,
    JobSpec,
    JobState,
    Mount,
    NodeName,
    Outcome,
    Owner,
    Segment,
    SegmentRef,
)
from daemon.store.records import EvictionRecord, HistoryLine, Intent, IntentId, NodeRecord
from daemon.store.tables import (
    CheckpointRow,
    EventRow,
    EvictionRow,
    IntentRow,
    JobRow,
    NodeRow,
    SegmentRow,
)


def stamp(moment: datetime) -> float:
    return moment.timestamp()


def maybe_stamp(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def maybe_moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else moment(seconds)


def spec_to_text(spec: JobSpec) -> str:
    limit = spec.time_limit
    return json.dumps(
        {
            "name": spec.name,
            "uid": spec.owner.uid,
            "gid": spec.owner.gid,
            "groups": spec.owner.groups,
            "user": spec.owner.name,
            "image": spec.image,
            "command": spec.command,
            "cpus": spec.cpus,
            "memory_mib": spec.memory_mib,
            "mounts": [(m.source, m.target, m.read_only) for m in spec.mounts],
            "workdir": spec.workdir,
            "time_limit_seconds": None if limit is None else limit.total_seconds(),
            "output": spec.output,
            "checkpoint": spec.checkpoint.value,
        }
    )


def spec_from_text(text: str) -> JobSpec:
    raw = json.loads(text)
    limit = raw["time_limit_seconds"]
    return JobSpec(
        name=raw["name"],
        owner=Owner(uid=raw["uid"], gid=raw["gid"], groups=tuple(raw["groups"]), name=raw["user"]),
        image=raw["image"],
        command=tuple(raw["command"]),
        cpus=raw["cpus"],
        memory_mib=raw["memory_mib"],
        mounts=tuple(Mount(source=s, target=t, read_only=r) for s, t, r in raw["mounts"]),
        workdir=raw["workdir"],
        time_limit=None if limit is None else timedelta(seconds=limit),
        output=raw["output"],
        checkpoint=CheckpointMode(raw["checkpoint"]),
    )


def write_job(row: JobRow, job: Job) -> JobRow:
    """Copy everything of the job that can change into its row."""
    row.state = job.state.value
    row.reason = job.reason
    row.started = maybe_stamp(job.started)
    row.ended = maybe_stamp(job.ended)
    row.exit_code = job.exit_code
    row.image_digest = job.image_digest
    row.last_epoch = job.last_epoch
    row.generation = job.generation
    row.ran_seconds = job.ran.total_seconds()
    row.lost_seconds = job.lost.total_seconds()
    row.evictions = job.evictions
    row.migrations = job.migrations
    row.cancel_wanted = job.cancel_wanted
    row.hold_wanted = job.hold_wanted
    row.faults = job.faults
    row.not_before = maybe_stamp(job.not_before)
    return row


def read_job(row: JobRow, segment: Segment | None) -> Job:
    if row.id is None:
        raise ValueError("a job's row has its number once it is stored")
    return Job(
        id=JobId(row.id),
        spec=spec_from_text(row.spec),
        state=JobState(row.state),
        submitted=moment(row.submitted),
        reason=row.reason,
        started=maybe_moment(row.started),
        ended=maybe_moment(row.ended),
        exit_code=row.exit_code,
        image_digest=row.image_digest,
        segment=segment,
        last_epoch=row.last_epoch,
        generation=None if row.generation is None else Generation(row.generation),
        ran=timedelta(seconds=row.ran_seconds),
        lost=timedelta(seconds=row.lost_seconds),
        evictions=row.evictions,
        migrations=row.migrations,
        cancel_wanted=row.cancel_wanted,
        hold_wanted=row.hold_wanted,
        faults=row.faults,
        not_before=maybe_moment(row.not_before),
    )


def segment_to_row(segment: Segment) -> SegmentRow:
    return SegmentRow(
        job=segment.job,
        epoch=segment.epoch,
        node=segment.node,
        started=stamp(segment.started),
        ended=maybe_stamp(segment.ended),
        outcome=segment.outcome.value,
        resumed_from=segment.resumed_from,
    )


def segment_from_row(row: SegmentRow) -> Segment:
    return Segment(
        job=JobId(row.job),
        epoch=Epoch(row.epoch),
        node=NodeName(row.node),
        started=moment(row.started),
        ended=maybe_moment(row.ended),
        outcome=Outcome(row.outcome),
        resumed_from=None if row.resumed_from is None else Generation(row.resumed_from),
    )


def checkpoint_to_row(checkpoint: Checkpoint) -> CheckpointRow:
    return CheckpointRow(
        job=checkpoint.job,
        generation=checkpoint.generation,
        epoch=checkpoint.epoch,
        time=stamp(checkpoint.time),
        size_bytes=checkpoint.size_bytes,
        seconds=checkpoint.seconds,
        kind=checkpoint.kind.value,
    )


def checkpoint_from_row(row: CheckpointRow) -> Checkpoint:
    return Checkpoint(
        job=JobId(row.job),
        generation=Generation(row.generation),
        epoch=Epoch(row.epoch),
        time=moment(row.time),
        size_bytes=row.size_bytes,
        seconds=row.seconds,
        kind=CheckpointKind(row.kind),
    )


def history_from_row(row: EventRow) -> HistoryLine:
    return HistoryLine(time=moment(row.time), event=row.event, state=row.state, reason=row.reason)


def intent_from_row(row: IntentRow) -> Intent:
    return Intent(
        id=IntentId(row.id or 0),
        job=JobId(row.job),
        action=row.action,
        node=None if row.node is None else NodeName(row.node),
        epoch=None if row.epoch is None else Epoch(row.epoch),
    )


def eviction_to_row(record: EvictionRecord) -> EvictionRow:
    return EvictionRow(
        job=record.ref.job,
        epoch=record.ref.epoch,
        node=record.ref.node,
        time=stamp(record.time),
        freeze_seconds=record.freeze_seconds,
        vacate_seconds=record.vacate_seconds,
    )


def eviction_from_row(row: EvictionRow) -> EvictionRecord:
    return EvictionRecord(
        ref=SegmentRef(job=JobId(row.job), epoch=Epoch(row.epoch), node=NodeName(row.node)),
        time=moment(row.time),
        freeze_seconds=row.freeze_seconds,
        vacate_seconds=row.vacate_seconds,
    )


def node_to_row(record: NodeRecord) -> NodeRow:
    return NodeRow(
        name=record.name,
        drained=maybe_stamp(record.drained),
        probe_digest=record.probe_digest,
        probe_ok=record.probe_ok,
        probe_why=record.probe_why,
        probed=maybe_stamp(record.probed),
        other_users=record.other_users,
    )


def node_from_row(row: NodeRow) -> NodeRecord:
    return NodeRecord(
        name=NodeName(row.name),
        drained=maybe_moment(row.drained),
        probe_digest=row.probe_digest,
        probe_ok=row.probe_ok,
        probe_why=row.probe_why,
        probed=maybe_moment(row.probed),
        other_users=row.other_users,
    )
