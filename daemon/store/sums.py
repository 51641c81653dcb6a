"""What is counted over all jobs, and what of their histories is forgotten with time."""

from datetime import datetime, timedelta

from sqlalchemy import Delete
from sqlmodel import Session, and_, case, col, delete, func, or_, select

from daemon.core.history import Change
from daemon.core.lifecycle import Event
from daemon.core.types import CheckpointKind, Job, Losses, Outcome
from daemon.store import mapping
from daemon.store.tables import CheckpointRow, EventRow, IntentRow, JobRow, SegmentRow


def losses(session: Session) -> Losses:
    """Return how often segments were lost, of all that have ended."""
    ran = func.sum(col(SegmentRow.ended) - col(SegmentRow.started))
    crashed = func.sum(case((col(SegmentRow.outcome) == Outcome.CRASHED.value, 1), else_=0))
    seconds, count = session.exec(select(ran, crashed)).one()
    return Losses(ran=timedelta(seconds=max(0.0, seconds or 0.0)), count=count or 0)


def more(so_far: Losses, job: Job, change: Change, now: datetime) -> Losses:
    """Return the losses with the segment that the change has ended."""
    if change.outcome is None or change.struck or job.segment is None:
        return so_far
    return Losses(
        ran=so_far.ran + max(now - job.segment.started, timedelta()),
        count=so_far.count + (change.outcome is Outcome.CRASHED),
    )


def prune(session: Session, before: datetime) -> int:
    """Forget what ``Store.prune`` says; return how many events are gone."""
    moment = mapping.stamp(before)
    ended = select(JobRow.id).where(col(JobRow.ended) < moment)
    routine = col(EventRow.event).in_((Event.KEPT.value, Event.NOT_KEPT.value))
    gone = session.connection().execute(
        delete(EventRow).where(
            or_(col(EventRow.job).in_(ended), and_(routine, col(EventRow.time) < moment))
        )
    )
    session.execute(delete(IntentRow).where(col(IntentRow.done) < moment))
    session.execute(_superseded(moment))
    return gone.rowcount


def _superseded(moment: float) -> Delete:
    """Return how to forget old checkpoints that no segment was resumed from, nor will be."""
    used = select(SegmentRow.job).where(
        col(SegmentRow.job) == col(CheckpointRow.job),
        col(SegmentRow.resumed_from) == col(CheckpointRow.generation),
    )
    kept = select(JobRow.id).where(
        col(JobRow.id) == col(CheckpointRow.job),
        or_(
            col(JobRow.generation).is_(None),
            # Two generations are there; the newer may turn out to be no good.
            col(JobRow.generation) <= col(CheckpointRow.generation) + 1,
        ),
    )
    return delete(CheckpointRow).where(
        col(CheckpointRow.kind) != CheckpointKind.EVICTION.value,
        col(CheckpointRow.time) < moment,
        ~used.exists(),
        ~kept.exists(),
    )
