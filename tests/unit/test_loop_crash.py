"""Segments that are lost: what a job falls back to, and what it must not do twice."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from daemon.core.history import Change
from daemon.core.types import (
    AfterCrash,
    CheckpointMode,
    Generation,
    JobId,
    JobState,
    NodeName,
    Outcome,
)
from daemon.desk.following import follow
from migration.base import EngineError, NodeUnfitError, NotResumableError
from migration.fake import Program
from tests.stage import Stage

pytestmark = pytest.mark.loop

EVERY = timedelta(seconds=300)
UNREADABLE = NotResumableError("CRIU cannot read it")
PROGRAMS: dict[tuple[str, ...], Program] = {
    ("count",): Program(),
    ("write",): Program(writes=True),
    ("short",): Program(seconds=500, writes=True),
    ("brief",): Program(seconds=100),
}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path, programs=PROGRAMS)
    yield stage
    stage.close()


def _node(stage: Stage, job: JobId) -> NodeName:
    return NodeName(stage.node(job) or "")


def _lose(stage: Stage, job: JobId) -> NodeName:
    """Switch the job's node off, and have an administrator say so."""
    node = _node(stage, job)
    stage.engine.switch_off(node)
    stage.run(stage.policy.silence.total_seconds() + 5)
    assert JobState.UNREACHABLE is stage.state(job)
    stage.observer.set_gone(node, gone=True)
    stage.run(5)
    return node


def _release(stage: Stage, job: JobId) -> None:
    stage.store.record(Change(job=job, hold_wanted=False), now=stage.clock.now())
    stage.settle()


def test_a_crash_costs_what_came_after_the_last_checkpoint(stage: Stage) -> None:
    """
    The job goes on from what was kept, and its log and its lost time are counted from there.
    """
    job = stage.submit("count")
    stage.run(60)
    stage.engine.kill(stage.engine.living(job)[0])
    stage.run(10)

    assert JobState.RUNNING is stage.state(job)
    assert [None, 1] == [s.resumed_from for s in stage.store.segments(job)]
    assert timedelta(seconds=25) <= stage.job(job).lost <= timedelta(seconds=35)
    log = stage.counted(job)
    assert list(range(len(log))) == log
    assert len(log) > 30


def test_a_node_that_is_lost_costs_one_interval(stage: Stage) -> None:
    """
    When an administrator says that it is dead its jobs go on elsewhere; log and files are whole.
    """
    job = stage.submit("write", checkpoint_every=EVERY)
    stage.run(700, step=5)
    lost = _lose(stage, job)

    assert JobState.RUNNING is stage.state(job)
    assert lost != _node(stage, job)
    assert stage.job(job).lost < EVERY + timedelta(seconds=60)
    assert 0 == stage.job(job).faults
    log = stage.counted(job)
    assert list(range(len(log))) == log
    assert log[:300] == [int(n) for n in stage.engine.written(job).split()][:300]
    stage.run(60)
    written = [int(n) for n in stage.engine.written(job).split()]
    assert list(range(len(written))) == written


def test_crashes_in_a_row_leave_one_sequence(stage: Stage) -> None:
    """
    Kept, crashed, resumed, kept, crashed, resumed: every line once.
    """
    job = stage.submit("short", checkpoint_every=EVERY)
    stage.run(60)
    stage.engine.kill(stage.engine.living(job)[0])
    stage.run(350, step=5)
    stage.engine.kill(stage.engine.living(job)[0])
    stage.run(5)
    stage.engine.kill(stage.engine.living(job)[0])
    stage.run(500, step=5)
    stage.settle()

    assert JobState.COMPLETED is stage.state(job)
    assert list(range(500)) == stage.counted(job)
    assert list(range(500)) == [int(n) for n in stage.engine.written(job).split()]


def test_changed_files_hold_a_job(stage: Stage) -> None:
    """
    Its submitter is told which files, and may have it go on all the same.
    """
    job = stage.submit("write")
    stage.run(60)
    stage.engine.meddle(job, "/data/table (was rewritten)")
    stage.engine.kill(stage.engine.living(job)[0])
    stage.run(10)
    found = stage.job(job)
    assert (JobState.HELD, ("/data/table (was rewritten)",)) == (found.state, found.changed_files)
    assert "/data/table" in found.reason
    assert f"stopgap release {job}" in found.reason
    stage.reopen()
    stage.run(10)
    assert JobState.HELD is stage.state(job)

    _release(stage, job)
    assert JobState.RUNNING is stage.state(job)
    assert "changed since its checkpoint: /data/table" in stage.job(job).reason
    assert () == stage.job(job).changed_files


def test_a_submitter_may_not_care_for_changed_files(stage: Stage) -> None:
    """
    ``--after-crash resume`` goes on, and says what was found.
    """
    job = stage.submit("write", after_crash=AfterCrash.RESUME)
    stage.run(60)
    stage.engine.meddle(job, "/data/table (was rewritten)")
    stage.engine.kill(stage.engine.living(job)[0])
    stage.run(10)

    assert JobState.RUNNING is stage.state(job)
    assert "/data/table" in stage.job(job).reason


def test_what_is_changed_while_a_job_is_parked_is_no_crash(stage: Stage) -> None:
    """
    After an eviction files are left alone, whoever has worked on them.
    """
    job = stage.submit("write")
    stage.run(60)
    stage.claim("n1", seconds=20)
    stage.claim("n2", seconds=20)
    stage.run(5)
    stage.engine.meddle(job, "/data/input")
    stage.run(40)

    assert JobState.RUNNING is stage.state(job)
    assert "/data/input" not in stage.job(job).reason


def test_a_crash_after_an_eviction_is_a_crash(stage: Stage) -> None:
    """
    The generation may be of an eviction: what was done after it is done again.
    """
    job = stage.submit("write")
    stage.run(10)
    stage.claim(_node(stage, job), seconds=5)
    stage.run(20)
    stage.engine.meddle(job, "/data/table")
    stage.engine.kill(stage.engine.living(job)[0])
    stage.run(10)

    assert JobState.HELD is stage.state(job)


def test_a_killed_job_falls_back_to_what_was_kept(stage: Stage) -> None:
    """
    The deadline of a claim costs no more than a crash does.
    """
    job = stage.submit("write")
    stage.run(60)
    node = _node(stage, job)
    stage.claim(node)
    program = stage.engine._node(node).segments[stage.engine.living(job)[0]]
    program.program = Program(writes=True, dumpable=False)
    stage.run(stage.policy.vacate.total_seconds() + 10)

    assert JobState.RUNNING is stage.state(job)
    assert [None, 1] == [s.resumed_from for s in stage.store.segments(job)]
    assert Outcome.CRASHED is stage.store.segments(job)[0].outcome
    assert stage.job(job).lost < timedelta(seconds=120)


def test_a_node_that_was_called_dead_is_swept_when_it_comes_back(stage: Stage) -> None:
    """
    The administrator was wrong, or repaired it: nothing of ours lives there when it is used.
    """
    job = stage.submit("write")
    stage.run(60)
    node = _node(stage, job)
    stage.engine.cut(node)
    stage.run(stage.policy.silence.total_seconds() + 5)
    stage.observer.set_gone(node, gone=True)
    stage.run(5)
    assert JobState.RUNNING is stage.state(job)
    assert 2 == len(stage.engine.living(job))
    stage.submit("count", cpus=4)
    orphan = next(ref for ref in stage.engine.living(job) if ref.node == node)
    stage.engine.orphan(orphan)

    stage.engine.mend(node)
    canaries = stage.prober.canaries.count(node)
    stage.look()
    assert 1 == len(stage.engine.living(job))
    stage.run(60)
    assert () == tuple(stage.observer.look().gone)
    assert 4 == sum(
        found.spec.cpus
        for found in stage.store.live_jobs()
        if found.segment is not None and found.segment.node == node
    )
    assert canaries <= stage.prober.canaries.count(node)


def test_nobody_waits_for_what_was_printed_on_a_dead_node(stage: Stage) -> None:
    """
    The log of a job that saves itself goes on without it, and who follows it comes to its end.
    """
    job = stage.submit("brief", checkpoint=CheckpointMode.SIGNAL)
    stage.run(60)
    _lose(stage, job)
    stage.run(101)
    stage.settle()
    assert JobState.COMPLETED is stage.state(job)

    assert list(range(100)) == stage.counted(job)
    followed = b"".join(follow(stage.tools, job))
    assert list(range(100)) == [int(n) for n in followed.split()]


def test_the_log_of_a_job_out_of_reach_is_there_as_far_as_it_was_kept(stage: Stage) -> None:
    """
    Whoever looks for his job while its node is away sees what it printed until it was saved.
    """
    job = stage.submit("count")
    stage.run(60)
    stage.engine.switch_off(_node(stage, job))
    stage.run(stage.policy.silence.total_seconds() + 5)

    assert JobState.UNREACHABLE is stage.state(job)
    log = stage.counted(job)
    assert list(range(len(log))) == log
    assert 25 <= len(log) <= 35


def test_a_dead_node_stays_dead_for_the_next_daemon(stage: Stage) -> None:
    """
    An administrator's word outlives the daemon that took it.
    """
    job = stage.submit("write")
    stage.run(60)
    node = _node(stage, job)
    stage.engine.switch_off(node)
    stage.run(stage.policy.silence.total_seconds() + 5)
    stage.observer.set_gone(node, gone=True)
    stage.reopen()
    stage.run(10)

    assert JobState.RUNNING is stage.state(job)
    assert node != _node(stage, job)


def test_a_rebooted_node_needs_no_administrator(stage: Stage) -> None:
    """
    Its own kernel proves that nothing is left; the job goes on from what was kept.
    """
    job = stage.submit("write")
    stage.run(60)
    node = _node(stage, job)
    stage.engine.switch_off(node)
    stage.run(stage.policy.silence.total_seconds() + 5)
    assert JobState.UNREACHABLE is stage.state(job)
    stage.engine.mend(node)
    stage.run(10)

    assert JobState.RUNNING is stage.state(job)
    assert [None, 1] == [s.resumed_from for s in stage.store.segments(job)]


def test_a_cancelled_job_on_a_dead_node_ends(stage: Stage) -> None:
    """
    Nothing but its node stood in the way.
    """
    job = stage.submit("write")
    stage.run(60)
    stage.store.record(Change(job=job, cancel_wanted=True), now=stage.clock.now())
    node = _node(stage, job)
    stage.engine.switch_off(node)
    stage.run(stage.policy.silence.total_seconds() + 5)
    stage.observer.set_gone(node, gone=True)
    stage.run(5)

    assert JobState.CANCELLED is stage.state(job)


def test_an_order_that_a_dead_node_had_may_have_run(stage: Stage) -> None:
    """
    Where it is not known whether a resume began, files are looked at as after a crash.
    """
    job = stage.submit("write")
    stage.run(60)
    stage.claim(_node(stage, job), seconds=1000)
    stage.look()
    assert JobState.PARKED is stage.state(job)
    target = NodeName("n2" if _node_of_last(stage, job) == "n1" else "n1")

    def die(verb: str, node: NodeName) -> None:
        if verb == "place" and node == target:
            stage.engine.cut(target)

    stage.engine.before = die
    stage.run(5)
    stage.engine.before = None
    assert JobState.RESUMING is stage.state(job)
    stage.observer.set_gone(target, gone=True)
    stage.run(5)

    assert JobState.PARKED is stage.state(job)
    assert AfterCrash.HOLD is stage.job(job).after_crash


def _node_of_last(stage: Stage, job: JobId) -> str:
    return stage.store.segments(job)[-1].node


def test_a_damaged_generation_is_not_the_last_word(stage: Stage) -> None:
    """
    Where the newest cannot be resumed the one before it is, and the difference is lost work.
    """
    job = stage.submit("write", checkpoint_every=EVERY)
    stage.run(700, step=5)
    older, newest = stage.engine.generations(job)
    stage.engine.spoil(job, newest)
    stage.engine.kill(stage.engine.living(job)[0])
    stage.run(10)

    assert JobState.RUNNING is stage.state(job)
    assert older == stage.store.segments(job)[-1].resumed_from
    assert EVERY <= stage.job(job).lost
    stage.run(10)
    log = stage.counted(job)
    assert list(range(len(log))) == log
    written = [int(n) for n in stage.engine.written(job).split()]
    assert list(range(len(written))) == written


def _with_two_generations(stage: Stage) -> tuple[JobId, Generation, Generation]:
    """Return a job that runs and was saved twice, with both generations."""
    job = stage.submit("write", checkpoint_every=EVERY)
    stage.run(700, step=5)
    older, newest = stage.engine.generations(job)
    return job, older, newest


def _crash_and_refuse(stage: Stage, job: JobId, *refusals: EngineError) -> Generation | None:
    """Kill the job, refuse to have it go on, and return what it goes on from in the end."""
    for refusal in refusals:
        stage.engine.fail("place", refusal)
    stage.engine.kill(stage.engine.living(job)[0])
    stage.run(120)
    assert JobState.RUNNING is stage.state(job)
    return stage.store.segments(job)[-1].resumed_from


def test_a_generation_that_fails_again_and_again_is_given_up(stage: Stage) -> None:
    """
    A generation may be whole and yet no good.
    """
    job, older, _ = _with_two_generations(stage)

    assert older == _crash_and_refuse(stage, job, *[UNREADABLE] * 3)


def test_other_faults_do_not_count_against_a_generation(stage: Stage) -> None:
    """
    It is given up for what it did itself, and the next try is on another node.
    """
    job, _, newest = _with_two_generations(stage)
    no_room = NodeUnfitError("no room")

    assert newest == _crash_and_refuse(stage, job, no_room, no_room, UNREADABLE)


def test_the_proven_generation_outlives_the_one_that_was_given_up(stage: Stage) -> None:
    """
    If the next checkpoint is no good either, there is still the one that the job came from.
    """
    job, older, _ = _with_two_generations(stage)
    assert older == _crash_and_refuse(stage, job, *[UNREADABLE] * 3)
    stage.run(330, step=5)

    assert stage.job(job).generation != older
    assert older in stage.engine.generations(job)


def test_logs_that_were_copied_meanwhile_are_nobodys_doing(stage: Stage, tmp_path: Path) -> None:
    """
    Jobs of one submitter that end in the same directory do not hold each other up.
    """
    first = stage.submit("brief", output=str(tmp_path / "first"))
    stage.run(150)
    assert JobState.COMPLETED is stage.state(first)
    job = stage.submit("write")
    stage.submit("brief", output=str(tmp_path / "second"))
    stage.run(150)
    stage.engine.kill(next(ref for ref in stage.engine.living(job)))
    stage.run(10)

    assert JobState.RUNNING is stage.state(job)
    assert (str(tmp_path / "second"),) == stage.engine.orders[-1].ignored


def test_a_lost_node_takes_no_log_along_that_was_kept(stage: Stage) -> None:
    """
    As long as the job waits for a node its log is what was kept until its last checkpoint.
    """
    job = stage.submit("count")
    stage.run(60)
    kept = len(stage.counted(job))
    for node in ("n1", "n2"):
        if node != stage.node(job):
            stage.observer.set_drained(NodeName(node), drained=True)
    stage.engine.switch_off(_node(stage, job))
    stage.run(stage.policy.silence.total_seconds() + 5)
    stage.observer.set_gone(_node(stage, job), gone=True)
    stage.run(5)

    assert JobState.PARKED is stage.state(job)
    log = stage.counted(job)
    assert 25 <= len(log) <= kept
    assert list(range(len(log))) == log
