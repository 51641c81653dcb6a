"""The store: one SQLite file, one writer, every change in one transaction.

Jobs that have not ended are kept as values in memory beside their rows, so that a look
costs no query.  All methods may be called from any thread.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NewType

from sqlalchemy import Engine, event
from sqlmodel import Session, SQLModel, col, create_engine, select

from daemon.core.history import Change, apply
from daemon.core.policy import Policy
from daemon.core.types import (
    TERMINAL,
    Checkpoint,
    Epoch,
    Job,
    JobId,
    JobSpec,
    JobState,
    NodeName,
    Segment,
    SegmentRef,
)
from daemon.store import mapping
from daemon.store.tables import (
    CheckpointRow,
    EventRow,
    EvictionRow,
    IntentRow,
    JobRow,
    MetaRow,
    NodeRow,
    SegmentRow,
)

SCHEMA = "1"

IntentId = NewType("IntentId", int)


class StoreError(Exception):
    """The store cannot be used; the text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLine:
    """One line of a job's history."""

    time: datetime
    event: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """An action that was begun."""

    id: IntentId
    job: JobId
    action: str
    node: NodeName | None
    epoch: Epoch | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionRecord:
    """How fast one job got out of the way."""

    ref: SegmentRef
    time: datetime
    #: From the look that saw the claim to the frozen job.
    freeze_seconds: float
    #: From the decision to the empty cgroup.
    vacate_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """What we remember of a node."""

    name: NodeName
    drained: datetime | None = None
    drain_reason: str = ""
    probe_digest: str = ""
    probe_ok: bool = False
    probe_why: str = ""
    probed: datetime | None = None
    other_users: bool = True


class Store:
    """Everything that must survive the daemon."""

    def __init__(self, path: Path, policy: Policy) -> None:
        self._path = path
        self._policy = policy
        self._lock = threading.RLock()
        self._engine: Engine | None = None
        self._live: dict[JobId, Job] = {}

    def open(self) -> None:
        """
        Open or create the file and load the jobs that have not ended.

        Raises:
            StoreError: it was written by a newer stopgap.
        """
        engine = create_engine(f"sqlite:///{self._path}", connect_args={"check_same_thread": False})
        event.listen(engine, "connect", _pragmas)
        SQLModel.metadata.create_all(engine)
        self._engine = engine
        with self._session() as session:
            known = session.get(MetaRow, "schema")
            if known is None:
                session.add(MetaRow(key="schema", value=SCHEMA))
            elif known.value != SCHEMA:
                raise StoreError(
                    f"{self._path} has schema {known.value}, this stopgap reads {SCHEMA}: "
                    "install the stopgap that wrote it, or move the file away"
                )
            ended = [state.value for state in TERMINAL]
            for row in session.exec(select(JobRow).where(col(JobRow.state).not_in(ended))):
                job = _read(session, row)
                self._live[job.id] = job

    def close(self) -> None:
        """Close the file; the store may be opened again."""
        with self._lock:
            if self._engine is not None:
                self._engine.dispose()
            self._engine = None
            self._live.clear()

    @contextmanager
    def _session(self) -> Iterator[Session]:
        with self._lock:
            if self._engine is None:
                raise StoreError(f"{self._path} is not open")
            with Session(self._engine, expire_on_commit=False) as session, session.begin():
                yield session

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
        with self._lock:
            self._live.update((job.id, job) for job in jobs)
        return jobs

    def live_jobs(self) -> tuple[Job, ...]:
        """Return all jobs that have not ended, in order of submission."""
        with self._lock:
            return tuple(self._live.values())

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
        ended = [state.value for state in TERMINAL]
        query = select(JobRow).where(col(JobRow.state).in_(ended))
        if uid is not None:
            query = query.where(JobRow.uid == uid)
        with self._session() as session:
            rows = session.exec(query.order_by(col(JobRow.ended).desc()).limit(limit)).all()
            return tuple(_read(session, row) for row in rows)

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
            return tuple(
                HistoryLine(
                    time=mapping.moment(row.time),
                    event=row.event,
                    state=row.state,
                    reason=row.reason,
                )
                for row in rows
            )

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
        with self._session() as session:
            row = session.get(JobRow, change.job)
            if row is None:
                raise StoreError(f"there is no job {change.job}")
            before = self._live.get(change.job) or _read(session, row)
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
                session.merge(_eviction(eviction))
        self._remember(job)
        return job, intent

    def _remember(self, job: Job) -> None:
        with self._lock:
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
            return tuple(
                Intent(
                    id=IntentId(row.id or 0),
                    job=JobId(row.job),
                    action=row.action,
                    node=None if row.node is None else NodeName(row.node),
                    epoch=None if row.epoch is None else Epoch(row.epoch),
                )
                for row in rows
            )

    # -- nodes and figures --------------------------------------------------

    def nodes(self) -> dict[NodeName, NodeRecord]:
        """Return what we remember of every node."""
        with self._session() as session:
            return {NodeName(row.name): _node(row) for row in session.exec(select(NodeRow))}

    def save_node(self, record: NodeRecord) -> None:
        """Replace what we remember of a node."""
        with self._session() as session:
            session.merge(
                NodeRow(
                    name=record.name,
                    drained=mapping.maybe_stamp(record.drained),
                    drain_reason=record.drain_reason,
                    probe_digest=record.probe_digest,
                    probe_ok=record.probe_ok,
                    probe_why=record.probe_why,
                    probed=mapping.maybe_stamp(record.probed),
                    other_users=record.other_users,
                )
            )

    def evictions(self, *, limit: int = 1000) -> tuple[EvictionRecord, ...]:
        """Return the newest evictions, newest first."""
        with self._session() as session:
            query = select(EvictionRow).order_by(col(EvictionRow.time).desc()).limit(limit)
            return tuple(
                EvictionRecord(
                    ref=SegmentRef(
                        job=JobId(row.job), epoch=Epoch(row.epoch), node=NodeName(row.node)
                    ),
                    time=mapping.moment(row.time),
                    freeze_seconds=row.freeze_seconds,
                    vacate_seconds=row.vacate_seconds,
                )
                for row in session.exec(query)
            )


def _pragmas(connection: object, _record: object) -> None:
    cursor = connection.cursor()  # type: ignore[attr-defined]  # a DB-API connection
    # WAL with FULL: a change that was reported is on the disk.
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=5000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


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


def _eviction(record: EvictionRecord) -> EvictionRow:
    return EvictionRow(
        job=record.ref.job,
        epoch=record.ref.epoch,
        node=record.ref.node,
        time=mapping.stamp(record.time),
        freeze_seconds=record.freeze_seconds,
        vacate_seconds=record.vacate_seconds,
    )


def _node(row: NodeRow) -> NodeRecord:
    return NodeRecord(
        name=NodeName(row.name),
        drained=mapping.maybe_moment(row.drained),
        drain_reason=row.drain_reason,
        probe_digest=row.probe_digest,
        probe_ok=row.probe_ok,
        probe_why=row.probe_why,
        probed=mapping.maybe_moment(row.probed),
        other_users=row.other_users,
    )
