"""How one change makes the next value of a job: the only place where jobs are counted up."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from daemon.core.lifecycle import Event, advance
from daemon.core.policy import Policy
from daemon.core.types import (
    TERMINAL,
    AfterCrash,
    Checkpoint,
    CheckpointMode,
    Job,
    JobId,
    Movable,
    Outcome,
    Segment,
    SegmentRef,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Something that happened to a job, with everything that follows from it for the records."""

    job: JobId
    event: Event | None = None
    reason: str = ""
    #: Event and reason count only as long as this segment is the newest and has not ended.
    about: SegmentRef | None = None
    #: A segment begins with this change.
    opened: Segment | None = None
    #: The newest segment ended so.
    outcome: Outcome | None = None
    #: The newest segment never ran an instruction: it is struck from the records.
    struck: bool = False
    #: Progress of the newest segment that has to be done again.
    lost: timedelta = timedelta()
    checkpoint: Checkpoint | None = None
    #: It goes on from this older generation, for the newest is no good.
    fallback: Checkpoint | None = None
    #: What its generations take after some were deleted.
    stored_bytes: int | None = None
    movable: Movable | None = None
    #: What stands in the way, when ``movable`` says that something does.
    movable_why: str = ""
    #: A checkpoint that leaves it running was tried just now, and it stood still for so long.
    stood_still: timedelta | None = None
    #: Its generation is older than what it did, or is so no more.
    after_crash: AfterCrash | None = None
    changed_files: tuple[str, ...] | None = None
    #: A kind of processor on which a move went wrong.
    avoid: str = ""
    exit_code: int | None = None
    image_digest: str | None = None
    #: True counts a fault that was not the job's, False ends a row of them.
    fault: bool | None = None
    #: The last fault turned out to be no concern of the job's.
    forgive: bool = False
    #: Leave the job alone for this long; not counted as a fault.
    pause: timedelta | None = None
    cancel_wanted: bool | None = None
    hold_wanted: bool | None = None


def timely(job: Job, change: Change) -> Change:
    """Return what the change means for a job that may have gone on since it came about."""
    segment = job.segment
    if change.about is None or (
        segment is not None and segment.ref == change.about and segment.ended is None
    ):
        return change
    return replace(change, event=None, reason="")


def apply(
    job: Job, change: Change, *, now: datetime, policy: Policy, previous: Segment | None = None
) -> Job:
    """
    Return the job after the change; ``previous`` is the segment before the newest one.

    Raises:
        IllegalTransitionError: the event must not happen in the job's state.
    """
    state = advance(job.state, change.event) if change.event is not None else job.state
    job = replace(job, state=state, reason=change.reason or job.reason)
    if change.opened is not None:
        job = replace(job, segment=change.opened, last_epoch=change.opened.epoch)
    if change.event is Event.PLACED:
        job = _placed(job, now, previous)
    if change.struck:
        job = replace(job, segment=previous, lost=job.lost + change.lost)
    elif change.outcome is not None:
        job = _ended(job, change, now)
    job = _checkpointed(job, change, now)
    if change.forgive:
        job = replace(job, faults=max(0, job.faults - 1))
    if change.fault is not None:
        job = _faulted(job, now, policy) if change.fault else _unfaulted(job)
    if change.pause is not None:
        job = replace(job, not_before=now + change.pause)
    return replace(
        job,
        ended=(job.ended or now) if state in TERMINAL else None,
        exit_code=change.exit_code if change.exit_code is not None else job.exit_code,
        image_digest=change.image_digest or job.image_digest,
        cancel_wanted=_or(change.cancel_wanted, job.cancel_wanted),
        hold_wanted=_or(change.hold_wanted, job.hold_wanted),
        avoid=tuple(sorted({*job.avoid, change.avoid})) if change.avoid else job.avoid,
    )


def _checkpointed(job: Job, change: Change, now: datetime) -> Job:
    """Return the job with what the change says of its checkpoints."""
    if change.checkpoint is not None:
        # What is told late is not to undo what was saved since.
        if job.generation is None or change.checkpoint.generation > job.generation:
            job = _with(job, change.checkpoint)
        stored = job.stored_bytes + change.checkpoint.written_bytes
        job = replace(job, stored_bytes=stored, movable=Movable.YES, movable_why="")
    if change.fallback is not None:
        job = _with(job, change.fallback)
    if change.stored_bytes is not None:
        job = replace(job, stored_bytes=change.stored_bytes)
    if change.movable is not None:
        job = replace(job, movable=change.movable, movable_why=change.movable_why)
    if change.stood_still is not None:
        job = replace(job, save_tried=now, save_cost=change.stood_still)
    if change.event is Event.SAVED:
        # Nothing was done since: what is saved is all there is.
        job = replace(job, after_crash=None, changed_files=())
    if change.after_crash is not None:
        job = replace(job, after_crash=change.after_crash)
    if change.changed_files is not None:
        job = replace(job, changed_files=change.changed_files)
    return job


def _with(job: Job, checkpoint: Checkpoint) -> Job:
    """Return the job as it waits for a resume from that checkpoint."""
    return replace(
        job,
        generation=checkpoint.generation,
        saved=checkpoint.time,
        machine=checkpoint.machine,
    )


def _or(new: bool | None, old: bool) -> bool:
    return old if new is None else new


def _placed(job: Job, now: datetime, previous: Segment | None) -> Job:
    segment = job.segment
    if segment is None:
        return job
    # One that saves itself goes on too, when it is started again elsewhere.
    goes_on = segment.resumed_from is not None or job.spec.checkpoint is CheckpointMode.SIGNAL
    moved = goes_on and previous is not None and previous.node != segment.node
    return replace(
        job,
        started=job.started or now,
        segment=replace(segment, started=now),
        after_crash=None,
        changed_files=(),
        migrations=job.migrations + moved,
    )


def _ended(job: Job, change: Change, now: datetime) -> Job:
    segment = job.segment
    if segment is None or segment.ended is not None or change.outcome is None:
        return job
    return replace(
        job,
        segment=replace(segment, ended=now, outcome=change.outcome),
        ran=job.ran + max(now - segment.started, timedelta()),
        lost=job.lost + change.lost,
        evictions=job.evictions + (change.outcome is Outcome.EVICTED),
    )


def _faulted(job: Job, now: datetime, policy: Policy) -> Job:
    faults = job.faults + 1
    return replace(
        job,
        faults=faults,
        not_before=now + policy.pause_after(faults),
        hold_wanted=job.hold_wanted or faults >= policy.max_faults,
    )


def _unfaulted(job: Job) -> Job:
    return replace(job, faults=0, not_before=None)
