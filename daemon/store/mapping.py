"""Rows to nouns and back."""

import json
from datetime import UTC, datetime, timedelta

from daemon.core.types import (
    AfterCrash,
    Checkpoint,
    CheckpointKind,
    CheckpointMode,
    Epoch,
    Generation,
    Job,
    JobId,
    JobSpec,
    JobState,
    Machine,
    Mount,
    Movable,
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


def maybe_seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()


def maybe_duration(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


def spec_to_text(spec: JobSpec) -> str:
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
            "time_limit_seconds": maybe_seconds(spec.time_limit),
            "output": spec.output,
            "checkpoint": spec.checkpoint.value,
            "checkpoint_every_seconds": maybe_seconds(spec.checkpoint_every),
            "after_crash": spec.after_crash.value,
            "results": spec.results,
        }
    )


def spec_from_text(text: str) -> JobSpec:
    raw = json.loads(text)
    return JobSpec(
        name=raw["name"],
        owner=Owner(uid=raw["uid"], gid=raw["gid"], groups=tuple(raw["groups"]), name=raw["user"]),
        image=raw["image"],
        command=tuple(raw["command"]),
        cpus=raw["cpus"],
        memory_mib=raw["memory_mib"],
        mounts=tuple(Mount(source=s, target=t, read_only=r) for s, t, r in raw["mounts"]),
        workdir=raw["workdir"],
        time_limit=maybe_duration(raw["time_limit_seconds"]),
        output=raw["output"],
        checkpoint=CheckpointMode(raw["checkpoint"]),
        # Jobs of an older stopgap lack these.
        checkpoint_every=maybe_duration(raw.get("checkpoint_every_seconds")),
        after_crash=AfterCrash(raw.get("after_crash", AfterCrash.HOLD)),
        results=tuple(raw.get("results", ())),
    )


def machine_to_text(machine: Machine | None) -> str:
    if machine is None:
        return ""
    return json.dumps(
        {
            "architecture": machine.architecture,
            "cgroup": machine.cgroup,
            "cpu": sorted(machine.cpu),
            "criu": machine.criu,
        }
    )


def machine_from_text(text: str) -> Machine | None:
    if not text:
        return None
    raw = json.loads(text)
    return Machine(
        architecture=raw["architecture"],
        cgroup=raw["cgroup"],
        cpu=frozenset(raw["cpu"]),
        criu=raw["criu"],
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
    row.movable = job.movable.value
    row.movable_why = job.movable_why
    row.saved = maybe_stamp(job.saved)
    row.save_tried = maybe_stamp(job.save_tried)
    row.save_cost_seconds = maybe_seconds(job.save_cost)
    row.stored_bytes = job.stored_bytes
    row.machine = machine_to_text(job.machine)
    row.after_crash = None if job.after_crash is None else job.after_crash.value
    row.changed_files = json.dumps(job.changed_files)
    row.avoid = json.dumps(job.avoid)
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
        movable=Movable(row.movable),
        movable_why=row.movable_why,
        saved=maybe_moment(row.saved),
        save_tried=maybe_moment(row.save_tried),
        save_cost=maybe_duration(row.save_cost_seconds),
        stored_bytes=row.stored_bytes,
        machine=machine_from_text(row.machine),
        after_crash=None if row.after_crash is None else AfterCrash(row.after_crash),
        changed_files=tuple(json.loads(row.changed_files)),
        avoid=tuple(json.loads(row.avoid)),
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
        shared_bytes=checkpoint.shared_bytes,
        saved_bytes=checkpoint.saved_bytes,
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
        shared_bytes=row.shared_bytes,
        saved_bytes=row.saved_bytes,
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
        begun=moment(row.begun),
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
        machine=machine_to_text(record.machine),
        gone=maybe_stamp(record.gone),
        panicked=maybe_stamp(record.panicked),
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
        machine=machine_from_text(row.machine),
        gone=maybe_moment(row.gone),
        panicked=maybe_moment(row.panicked),
    )
