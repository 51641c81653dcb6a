"""How one change makes the next value of a job: the only place where jobs are counted up."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from daemon.core.lifecycle import Event, advance
from daemon.core.policy import Policy
from daemon.core.types import (
    TERMINAL,
    Checkpoint,
    Job,
    JobId,
    Outcome,
    Segment,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Something that happened to a job, with everything that follows from it for the records."""

    job: JobId
    event: Event | None = None
    reason: str = ""
    #: A segment begins with this change.
    opened: Segment | None = None
    #: The newest segment ended so.
    outcome: Outcome | None = None
    #: The newest segment never ran an instruction: it is struck from the records.
    struck: bool = False
    #: Progress of the newest segment that has to be done again.
    lost: timedelta = timedelta()
    checkpoint: Checkpoint | None = None
    exit_code: int | None = None
    image_digest: str | None = None
    #: True counts a fault that was not the job's, False ends a row of them.
    fault: bool | None = None
    #: Leave the job alone for this long; not counted as a fault.
    pause: timedelta | None = None
    cancel_wanted: bool | None = None
    hold_wanted: bool | None = None


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
        job = replace(job, segment=previous)
    elif change.outcome is not None:
        job = _ended(job, change, now)
    if change.checkpoint is not None:
        job = replace(job, generation=change.checkpoint.generation)
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
    )


def _or(new: bool | None, old: bool) -> bool:
    return old if new is None else new


def _placed(job: Job, now: datetime, previous: Segment | None) -> Job:
    segment = job.segment
    if segment is None:
        return job
    moved = (
        segment.resumed_from is not None and previous is not None and previous.node != segment.node
    )
    return replace(
        job,
        started=job.started or now,
        segment=replace(segment, started=now),
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
