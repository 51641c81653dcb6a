"""The store: one SQLite file, one writer, every change in one transaction.

Jobs that have not ended are kept as values in memory beside their rows, so that a look
costs no query.  All methods may be called from any thread.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path

from sqlmodel import Session, col, select

from daemon.core.history import Change, apply, timely
from daemon.core.policy import Policy
from daemon.core.types import (
    TERMINAL,
    Checkpoint,
    Job,
    JobId,
    JobSpec,
    JobState,
    Losses,
    NodeName,
    Segment,
)
from daemon.store import mapping, sums
from daemon.store.database import Database, StoreError
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

_ENDED = tuple(state.value for state in TERMINAL)


class Store:
    """Everything that must survive the daemon."""

    def __init__(self, path: Path, policy: Policy) -> None:
        self._database = Database(path)
        self._policy = policy
        self._lock = self._database.lock
        self._session = self._database.session
        self._live: dict[JobId, Job] = {}
        #: How many of them each user has.
        self._counts: Counter[int] = Counter()
        self._losses = Losses()

    def open(self) -> None:
        """
        Open or create the file and load the jobs that have not ended.

        Raises:
            StoreError: it cannot be used.
        """
        self._database.open()
        with self._session() as session:
            for row in session.exec(select(JobRow).where(col(JobRow.state).not_in(_ENDED))):
                self._remember(_read(session, row))
            self._losses = sums.losses(session)

    def close(self) -> None:
        """Close the file; the store may be opened again."""
        with self._lock:
            self._database.close()
            self._live.clear()
            self._counts.clear()

    # -- jobs ---------------------------------------------------------------

    def submit(
        self, spec: JobSpec, *, now: datetime, prepare: Callable[[JobId], None] = lambda _job: None
    ) -> Job:
        """
        Enqueue a job and return it with its number.

        ``prepare`` is called with the number before anybody can see the job; when it fails
        there is no job.
        """
        return self.submit_many([spec], now=now, prepare=prepare)[0]

    def submit_many(
        self,
        specs: list[JobSpec],
        *,
        now: datetime,
        prepare: Callable[[JobId], None] = lambda _job: None,
    ) -> list[Job]:
        """Enqueue several jobs, all or none."""
        with self._lock:
            with self._session() as session:
                rows = [
                    JobRow(
                        uid=spec.owner.uid,
                        name=spec.name,
                        spec=mapping.spec_to_text(spec),
                        state=JobState.QUEUED.value,
                        reason="submitted",
                        submitted=mapping.stamp(now),
                    )
                    for spec in specs
                ]
                session.add_all(rows)
                session.flush()
                jobs = [mapping.read_job(row, None) for row in rows]
                for job in jobs:
                    prepare(job.id)
                    session.add(_event(job, "submit", now))
            for job in jobs:
                self._remember(job)
        return jobs

    def live_jobs(self) -> tuple[Job, ...]:
        """Return all jobs that have not ended, in order of submission."""
        with self._lock:
            return tuple(self._live.values())

    def live_count(self, uid: int) -> int:
        """Return how many jobs of a user have not ended."""
        with self._lock:
            return self._counts[uid]

    def job(self, job_id: JobId) -> Job | None:
        """Return one job, ended or not."""
        with self._lock:
            if job_id in self._live:
                return self._live[job_id]
        with self._session() as session:
            row = session.get(JobRow, job_id)
            return None if row is None else _read(session, row)

    def ended_jobs(self, *, uid: int | None, limit: int) -> tuple[Job, ...]:
        """Return the jobs that ended last, newest first."""
        query = select(JobRow).where(col(JobRow.state).in_(_ENDED))
        if uid is not None:
            query = query.where(JobRow.uid == uid)
        with self._session() as session:
            rows = session.exec(query.order_by(col(JobRow.ended).desc()).limit(limit)).all()
            return tuple(_read(session, row) for row in rows)

    def outputs(self, *, uid: int, since: datetime) -> frozenset[str]:
        """Return where the output of a user's jobs went that have ended since a moment."""
        query = select(JobRow.spec).where(
            JobRow.uid == uid, col(JobRow.ended) >= mapping.stamp(since)
        )
        with self._session() as session:
            specs = [mapping.spec_from_text(text) for text in session.exec(query)]
        return frozenset(spec.output for spec in specs if spec.output is not None)

    def segments(self, job_id: JobId) -> tuple[Segment, ...]:
        """Return the job's segments in order."""
        with self._session() as session:
            query = select(SegmentRow).where(SegmentRow.job == job_id)
            rows = session.exec(query.order_by(col(SegmentRow.epoch))).all()
            return tuple(mapping.segment_from_row(row) for row in rows)

    def checkpoints(self, job_id: JobId) -> tuple[Checkpoint, ...]:
        """Return every checkpoint that the job ever had, in order."""
        with self._session() as session:
            query = select(CheckpointRow).where(CheckpointRow.job == job_id)
            rows = session.exec(query.order_by(col(CheckpointRow.generation))).all()
            return tuple(mapping.checkpoint_from_row(row) for row in rows)

    def history(self, job_id: JobId) -> tuple[HistoryLine, ...]:
        """Return what happened to the job, in order."""
        with self._session() as session:
            rows = session.exec(
                select(EventRow).where(EventRow.job == job_id).order_by(col(EventRow.id))
            ).all()
            return tuple(mapping.history_from_row(row) for row in rows)

    # -- changes ------------------------------------------------------------

    def record(
        self,
        change: Change,
        *,
        now: datetime,
        begin: str | None = None,
        finish: IntentId | None = None,
        eviction: EvictionRecord | None = None,
    ) -> tuple[Job, IntentId | None]:
        """
        Write one change with its intent in one transaction.

        ``begin`` names an action that is about to be carried out and returns its intent;
        ``finish`` ticks one off.

        Raises:
            IllegalTransitionError: the event must not happen; nothing was written.
            StoreError: there is no such job.
        """
        # What is read, what is written and what is remembered are one step: a wish that came in
        # between would be applied to a job of the past.
        with self._lock:
            with self._session() as session:
                row = session.get(JobRow, change.job)
                if row is None:
                    raise StoreError(f"there is no job {change.job}")
                before = self._live.get(change.job) or _read(session, row)
                change = timely(before, change)
                previous = _previous(session, before)
                job = apply(before, change, now=now, policy=self._policy, previous=previous)
                session.add(mapping.write_job(row, job))
                if change.struck and before.segment is not None:
                    session.delete(session.get_one(SegmentRow, _key(before.segment)))
                elif job.segment is not None and job.segment != before.segment:
                    session.merge(mapping.segment_to_row(job.segment))
                if change.checkpoint is not None:
                    session.merge(mapping.checkpoint_to_row(change.checkpoint))
                if change.event is not None:
                    session.add(_event(job, change.event.value, now))
                intent = _begin(session, job, begin, now) if begin is not None else None
                if finish is not None:
                    _finish(session, finish, now, change.reason)
                if eviction is not None:
                    session.merge(mapping.eviction_to_row(eviction))
            self._remember(job)
            self._losses = sums.more(self._losses, before, change, now)
        return job, intent

    def losses(self) -> Losses:
        """Return how often segments were lost, of all that have ended."""
        return self._losses

    def _remember(self, job: Job) -> None:
        with self._lock:
            self._counts[job.spec.owner.uid] += (job.state not in TERMINAL) - (job.id in self._live)
            if job.state in TERMINAL:
                self._live.pop(job.id, None)
            else:
                self._live[job.id] = job

    def finish(self, intent: IntentId, *, now: datetime, note: str) -> None:
        """Tick an intent off that changed nothing about its job."""
        with self._session() as session:
            _finish(session, intent, now, note)

    def unfinished(self) -> tuple[Intent, ...]:
        """Return the actions that were under way when the last daemon ended."""
        with self._session() as session:
            rows = session.exec(select(IntentRow).where(col(IntentRow.done).is_(None))).all()
            return tuple(mapping.intent_from_row(row) for row in rows)

    def prune(self, before: datetime) -> int:
        """
        Forget events of jobs that ended before a moment, and what was done by then.

        Of jobs that have not ended, events about checkpoints that are as old go too: a job of
        months has thousands.  So do records of its checkpoints that newer ones have replaced.
        Return how many events are gone.
        """
        with self._session() as session:
            return sums.prune(session, before)

    # -- nodes and figures --------------------------------------------------

    def nodes(self) -> dict[NodeName, NodeRecord]:
        """Return what we remember of every node."""
        with self._session() as session:
            return {
                NodeName(row.name): mapping.node_from_row(row)
                for row in session.exec(select(NodeRow))
            }

    def save_nodes(self, records: Iterable[NodeRecord]) -> None:
        """Replace what we remember of nodes."""
        with self._session() as session:
            for record in records:
                session.merge(mapping.node_to_row(record))

    def evictions(self, *, limit: int = 1000) -> tuple[EvictionRecord, ...]:
        """Return the newest evictions, newest first."""
        with self._session() as session:
            query = select(EvictionRow).order_by(col(EvictionRow.time).desc()).limit(limit)
            return tuple(mapping.eviction_from_row(row) for row in session.exec(query))


def _read(session: Session, row: JobRow) -> Job:
    query = select(SegmentRow).where(SegmentRow.job == row.id)
    newest = session.exec(query.order_by(col(SegmentRow.epoch).desc()).limit(1)).first()
    return mapping.read_job(row, None if newest is None else mapping.segment_from_row(newest))


def _key(segment: Segment) -> tuple[int, int]:
    return (segment.job, segment.epoch)


def _previous(session: Session, job: Job) -> Segment | None:
    """Return the segment before the newest one."""
    if job.segment is None:
        return None
    query = select(SegmentRow).where(
        SegmentRow.job == job.id, col(SegmentRow.epoch) < job.segment.epoch
    )
    row = session.exec(query.order_by(col(SegmentRow.epoch).desc()).limit(1)).first()
    return None if row is None else mapping.segment_from_row(row)


def _event(job: Job, name: str, now: datetime) -> EventRow:
    return EventRow(
        job=job.id, time=mapping.stamp(now), event=name, state=job.state.value, reason=job.reason
    )


def _begin(session: Session, job: Job, action: str, now: datetime) -> IntentId:
    segment = job.segment
    row = IntentRow(
        job=job.id,
        action=action,
        node=None if segment is None else segment.node,
        epoch=None if segment is None else segment.epoch,
        begun=mapping.stamp(now),
    )
    session.add(row)
    session.flush()
    return IntentId(row.id or 0)


def _finish(session: Session, intent: IntentId, now: datetime, note: str) -> None:
    row = session.get_one(IntentRow, intent)
    row.done = mapping.stamp(now)
    row.note = note
    session.add(row)
