"""What the store remembers, and that nothing is remembered by halves."""

import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from daemon.core.history import Change
from daemon.core.lifecycle import Event, IllegalTransitionError
from daemon.core.policy import Policy
from daemon.core.types import (
    AfterCrash,
    Checkpoint,
    CheckpointKind,
    Epoch,
    Generation,
    Job,
    JobId,
    JobSpec,
    JobState,
    Mount,
    Movable,
    NodeName,
    Outcome,
    Owner,
    Segment,
)
from daemon.store import NodeRecord, Store, StoreError
from daemon.store.spool import Spool

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
N1, N2 = NodeName("n1"), NodeName("n2")


def _spec() -> JobSpec:
    return JobSpec(
        name="fold",
        owner=Owner(uid=1000, gid=100, groups=(100, 7), name="ada"),
        image="img:1",
        command=("run", "--fast"),
        cpus=3,
        memory_mib=2048,
        mounts=(Mount(source="/data", target="/d", read_only=True),),
        workdir="/d",
        time_limit=timedelta(hours=2),
        output="/data/out",
        checkpoint_every=timedelta(hours=1),
        after_crash=AfterCrash.RESUME,
        results=("/d/out",),
    )


def _open(folder: Path) -> Store:
    store = Store(folder / "stopgap.db", Policy())
    store.open()
    return store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = _open(tmp_path)
    yield store
    store.close()


def _segment(job: JobId, epoch: int, node: NodeName, resumed_from: int | None = None) -> Segment:
    return Segment(
        job=job,
        epoch=Epoch(epoch),
        node=node,
        started=NOW,
        resumed_from=None if resumed_from is None else Generation(resumed_from),
    )


def _evicted_once(store: Store) -> JobId:
    job = store.submit(_spec(), now=NOW).id
    later = NOW + timedelta(seconds=10)
    start = Change(job=job, event=Event.START, opened=_segment(job, 1, N1))
    store.record(start, now=NOW, begin="start")
    store.record(Change(job=job, event=Event.PLACED), now=NOW)
    store.record(Change(job=job, event=Event.EVICT), now=later)
    saved = Checkpoint(
        job=job,
        generation=Generation(1),
        epoch=Epoch(1),
        time=later,
        size_bytes=5,
        seconds=0.5,
        machine=None,
        shared_bytes=2,
        saved_bytes=7,
    )
    store.record(
        Change(job=job, event=Event.SAVED, outcome=Outcome.EVICTED, checkpoint=saved), now=later
    )
    return job


def test_another_daemon_reads_what_one_wrote(tmp_path: Path) -> None:
    """
    Every field of a job, its segments and its checkpoints survive the daemon.
    """
    first = _open(tmp_path)
    job = _evicted_once(first)
    before = (first.job(job), first.segments(job), first.checkpoints(job), first.history(job))
    first.close()
    second = _open(tmp_path)
    after = (second.job(job), second.segments(job), second.checkpoints(job), second.history(job))
    second.close()

    assert before == after
    assert before[0] is not None
    assert _spec() == before[0].spec
    assert timedelta(seconds=10) == before[0].ran


def test_a_change_is_whole_or_not_at_all(store: Store) -> None:
    """
    What the state machine refuses leaves no trace, not even of the intent with it.
    """
    job = store.submit(_spec(), now=NOW).id
    before = (store.job(job), store.history(job))
    with pytest.raises(IllegalTransitionError):
        store.record(Change(job=job, event=Event.SAVED), now=NOW, begin="evict")

    assert before == (store.job(job), store.history(job))
    assert () == store.unfinished()


def test_a_crash_leaves_exactly_the_undone_work(tmp_path: Path) -> None:
    """
    Intents that nobody ticked off are there after a restart; the others are not.
    """
    first = _open(tmp_path)
    jobs = [first.submit(_spec(), now=NOW).id for _ in range(3)]
    intents = [
        first.record(
            Change(job=job, event=Event.START, opened=_segment(job, 1, N1)), now=NOW, begin="start"
        )[1]
        for job in jobs
    ]
    assert intents[0] is not None
    first.finish(intents[0], now=NOW, note="done")
    first.close()
    second = _open(tmp_path)

    assert jobs[1:] == [intent.job for intent in second.unfinished()]
    second.close()


def test_a_segment_that_never_ran_is_struck(store: Store) -> None:
    """
    A placement that failed leaves the earlier segment as the newest, and its epoch is used up.
    """
    job = _evicted_once(store)
    resume = Change(job=job, event=Event.RESUME, opened=_segment(job, 2, N2, 1))
    store.record(resume, now=NOW)
    found, _ = store.record(Change(job=job, event=Event.PARK, struck=True, fault=True), now=NOW)

    assert [1] == [segment.epoch for segment in store.segments(job)]
    assert (2, 1) == (found.last_epoch, found.faults)
    assert found.segment is not None
    assert found.segment.epoch == 1


def test_a_resume_elsewhere_is_a_migration(store: Store) -> None:
    """
    A move is counted when the next segment runs on another node, not on the same one.
    """
    moves = {}
    for node in (N1, N2):
        job = _evicted_once(store)
        resume = Change(job=job, event=Event.RESUME, opened=_segment(job, 2, node, 1))
        store.record(resume, now=NOW)
        moves[node] = store.record(Change(job=job, event=Event.PLACED), now=NOW)[0].migrations

    assert {N1: 0, N2: 1} == moves


def test_faults_in_a_row_hold_the_job(store: Store) -> None:
    """
    A job that no node can run is held in the end, not tried for ever.
    """
    job = store.submit(_spec(), now=NOW).id
    pauses = []
    held = False
    for epoch in range(1, Policy().max_faults + 1):
        start = Change(job=job, event=Event.START, opened=_segment(job, epoch, N1))
        store.record(start, now=NOW)
        failed = Change(job=job, event=Event.REQUEUE, struck=True, fault=True)
        found, _ = store.record(failed, now=NOW)
        assert found.not_before is not None
        pauses.append(found.not_before - NOW)
        held = found.hold_wanted

    assert sorted(pauses) == pauses
    assert held


def test_old_history_is_forgotten(store: Store) -> None:
    """
    Of jobs that ended long ago, and nothing of those that have not but their checkpoints'.
    """
    old, running = _evicted_once(store), _evicted_once(store)
    late = NOW + timedelta(days=100)
    store.record(Change(job=old, event=Event.CANCELLED), now=NOW + timedelta(days=1))
    for event in (Event.RESUME, Event.PLACED, Event.KEPT):
        opened = _segment(running, 2, N2, 1) if event is Event.RESUME else None
        store.record(Change(job=running, event=event, opened=opened), now=NOW)
    store.record(Change(job=running, event=Event.KEPT), now=late)
    intent = store.record(Change(job=running), now=NOW, begin="save")[1]
    before = len(store.history(running))
    gone = store.prune(late - timedelta(days=90))

    assert gone > 4
    assert () == store.history(old)
    assert store.job(old) is not None
    assert before - 1 == len(store.history(running))
    assert "kept" == store.history(running)[-1].event
    assert intent in [found.id for found in store.unfinished()]


def test_what_is_told_too_late_changes_no_state(store: Store) -> None:
    """
    A checkpoint that was to leave its job running is known, though the job was evicted first.
    """
    job = _evicted_once(store)
    before = store.job(job)
    assert before is not None
    assert before.segment is not None
    late = Checkpoint(
        job=job,
        generation=Generation(2),
        epoch=Epoch(1),
        time=NOW,
        size_bytes=5,
        seconds=0.5,
        kind=CheckpointKind.PERIODIC,
    )
    about = before.segment.ref
    change = Change(job=job, event=Event.KEPT, about=about, checkpoint=late, reason="runs on")
    after, _ = store.record(change, now=NOW)

    assert (JobState.PARKED, before.reason) == (after.state, after.reason)
    assert [1, 2] == [found.generation for found in store.checkpoints(job)]


def test_records_of_replaced_checkpoints_are_forgotten(store: Store) -> None:
    """
    Those that a job was resumed from, and those that it may fall back to, stay.
    """
    job = _evicted_once(store)
    for event in (Event.RESUME, Event.PLACED):
        opened = _segment(job, 2, N2, 1) if event is Event.RESUME else None
        store.record(Change(job=job, event=event, opened=opened), now=NOW)
    for number in range(2, 7):
        kept = Checkpoint(
            job=job,
            generation=Generation(number),
            epoch=Epoch(2),
            time=NOW,
            size_bytes=5,
            seconds=0.5,
            kind=CheckpointKind.PERIODIC,
        )
        store.record(Change(job=job, event=Event.KEPT, checkpoint=kept), now=NOW)
    store.prune(NOW + timedelta(days=1))

    assert [1, 5, 6] == [found.generation for found in store.checkpoints(job)]


def test_no_environment_no_job(store: Store) -> None:
    """
    A job whose environment cannot be kept is not enqueued.
    """

    def fails(_job: JobId) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        store.submit(_spec(), now=NOW, prepare=fails)

    assert () == store.live_jobs()


def test_a_newer_schema_is_not_touched(tmp_path: Path) -> None:
    """
    The file of a newer stopgap is refused with what to do.
    """
    store = _open(tmp_path)
    with store._session() as session:
        from daemon.store.tables import MetaRow  # noqa: PLC0415  rows are the store's own

        session.merge(MetaRow(key="schema", value="99"))
    store.close()

    with pytest.raises(StoreError, match="install the stopgap that wrote it"):
        _open(tmp_path)


def test_an_older_schema_is_brought_up_to_date(tmp_path: Path) -> None:
    """
    The queue of the version before is there, with what it did not know.
    """
    old = sqlite3.connect(tmp_path / "stopgap.db")
    old.executescript(SCHEMA_1)
    old.commit()
    old.close()
    _open(tmp_path).close()
    store = _open(tmp_path)
    (job,) = store.live_jobs()
    store.record(Change(job=job.id, hold_wanted=True), now=NOW)
    nodes = store.nodes()
    (checkpoint,) = store.checkpoints(job.id)
    store.close()

    assert (4096, 4096) == (checkpoint.plain_bytes, checkpoint.written_bytes)
    assert ("fold", Movable.UNKNOWN, AfterCrash.HOLD) == (
        job.spec.name,
        job.movable,
        job.spec.after_crash,
    )
    assert nodes[N1].gone is None


#: A database as version 0.1.0 wrote it, with a job, its checkpoint and a node.
SCHEMA_1 = """
CREATE TABLE job (id INTEGER NOT NULL PRIMARY KEY, uid INTEGER NOT NULL, name VARCHAR NOT NULL,
    spec VARCHAR NOT NULL, state VARCHAR NOT NULL, reason VARCHAR NOT NULL,
    submitted FLOAT NOT NULL, started FLOAT, ended FLOAT, exit_code INTEGER, image_digest VARCHAR,
    last_epoch INTEGER NOT NULL, generation INTEGER, ran_seconds FLOAT NOT NULL,
    lost_seconds FLOAT NOT NULL, evictions INTEGER NOT NULL, migrations INTEGER NOT NULL,
    cancel_wanted BOOLEAN NOT NULL, hold_wanted BOOLEAN NOT NULL, faults INTEGER NOT NULL,
    not_before FLOAT);
CREATE TABLE node (name VARCHAR NOT NULL PRIMARY KEY, drained FLOAT,
    probe_digest VARCHAR NOT NULL, probe_ok BOOLEAN NOT NULL, probe_why VARCHAR NOT NULL,
    probed FLOAT, other_users BOOLEAN NOT NULL);
CREATE TABLE checkpoint (job INTEGER NOT NULL, generation INTEGER NOT NULL,
    epoch INTEGER NOT NULL, time FLOAT NOT NULL, size_bytes INTEGER NOT NULL,
    seconds FLOAT NOT NULL, kind VARCHAR NOT NULL, PRIMARY KEY (job, generation));
CREATE TABLE meta (key VARCHAR NOT NULL PRIMARY KEY, value VARCHAR NOT NULL);
INSERT INTO checkpoint VALUES (7, 1, 1, 1.0, 4096, 0.5, 'evict');
INSERT INTO meta VALUES ('schema', '1');
INSERT INTO node VALUES ('n1', NULL, 'd', 1, '', NULL, 1);
INSERT INTO job VALUES (7, 1000, 'fold', '{"name": "fold", "uid": 1000, "gid": 100,
    "groups": [], "user": "ada", "image": "img:1", "command": ["run"], "cpus": 1,
    "memory_mib": 512, "mounts": [], "workdir": null, "time_limit_seconds": null,
    "output": null, "checkpoint": "criu"}', 'queued', '', 1.0, NULL, NULL, NULL, NULL, 0, NULL,
    0, 0, 0, 0, 0, 0, 0, NULL);
"""


def test_a_broken_file_is_told_not_overwritten(tmp_path: Path) -> None:
    """
    A file that is no database stays as it is.
    """
    path = tmp_path / "stopgap.db"
    path.write_bytes(b"not a database" * 100)

    with pytest.raises(StoreError, match="restore it from a backup"):
        _open(tmp_path)
    assert path.read_bytes().startswith(b"not a database")


def test_nodes_are_remembered(store: Store) -> None:
    """
    What is known of a node is read back as it was written.
    """
    record = NodeRecord(
        name=N1, drained=NOW, probe_digest="d", probe_ok=True, probed=NOW, other_users=False
    )
    store.save_nodes([record])

    assert {N1: record} == store.nodes()


def test_ended_jobs_leave_the_queue(store: Store) -> None:
    """
    A job that has ended is found by its number and in the list of ended jobs only.
    """
    job = store.submit(_spec(), now=NOW).id
    store.record(Change(job=job, event=Event.CANCELLED), now=NOW)

    assert () == store.live_jobs()
    assert 0 == store.live_count(1000)
    assert [job] == [found.id for found in store.ended_jobs(uid=1000, limit=10)]
    assert () == store.ended_jobs(uid=1, limit=10)
    found = store.job(job)
    assert found is not None
    assert (JobState.CANCELLED, NOW) == (found.state, found.ended)


def test_secrets_are_for_root_alone(tmp_path: Path) -> None:
    """
    An environment is kept where only root reads it, and can be forgotten.
    """
    spool = Spool(tmp_path)
    spool.put_env(JobId(1), {"TOKEN": "x"})
    path = tmp_path / "jobs" / "1" / "env.json"

    assert 0o600 == path.stat().st_mode & 0o777
    assert 0o700 == path.parent.stat().st_mode & 0o777
    assert {"TOKEN": "x"} == spool.env(JobId(1))
    spool.drop_env(JobId(1))
    assert {} == spool.env(JobId(1))


def test_a_log_is_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    """
    A log whose copying was cut short is not taken for a log.
    """
    spool = Spool(tmp_path)

    def cut() -> Iterator[bytes]:
        yield b"half"
        raise ConnectionError("the engine went away")

    with pytest.raises(ConnectionError):
        spool.put_log(JobId(1), Epoch(1), cut())
    assert not spool.has_log(JobId(1), Epoch(1))

    spool.put_log(JobId(1), Epoch(1), [b"a", b"b"])
    assert b"ab" == b"".join(spool.log(JobId(1), Epoch(1)))


def test_what_two_threads_record_is_both_remembered(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A wish that comes while a job's state changes does not bring the old state back.
    """
    job = store.submit(_spec(), now=NOW).id
    store.record(Change(job=job, event=Event.START, opened=_segment(job, 1, N1)), now=NOW)
    wish = threading.Thread(
        target=store.record, args=(Change(job=job, cancel_wanted=True),), kwargs={"now": NOW}
    )
    remember = store._remember

    def slowly(changed: Job) -> None:
        monkeypatch.undo()
        wish.start()
        wish.join(0.2)
        remember(changed)

    monkeypatch.setattr(store, "_remember", slowly)
    store.record(Change(job=job, event=Event.PLACED), now=NOW)
    wish.join()

    found = store.job(job)
    assert found is not None
    assert (JobState.RUNNING, True) == (found.state, found.cancel_wanted)


def test_outputs_are_those_of_the_users_jobs_that_ended_since(store: Store) -> None:
    """
    Neither those of before, nor of others, nor of jobs that still run.
    """
    soon, later = NOW + timedelta(seconds=5), NOW + timedelta(seconds=9)
    for output, uid, ended in (
        ("/early", 1000, NOW),
        ("/late", 1000, later),
        ("/others", 1001, later),
        ("/runs", 1000, None),
        (None, 1000, later),
    ):
        spec = replace(_spec(), output=output, owner=Owner(uid=uid, gid=uid))
        job = store.submit(spec, now=NOW).id
        if ended is not None:
            store.record(Change(job=job, event=Event.CANCELLED), now=ended)

    assert {"/late"} == store.outputs(uid=1000, since=soon)
