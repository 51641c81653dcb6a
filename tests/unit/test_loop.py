"""The whole loop on fakes: what a job may count on, whatever happens around it."""

import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from daemon.acts.output import OutputWriter
from daemon.core.actions import Place, Probe, Settle, Sweep, Vacate
from daemon.core.history import Change
from daemon.core.policy import Policy
from daemon.core.types import (
    CheckpointMode,
    Claim,
    ClaimSource,
    Epoch,
    JobId,
    JobState,
    NodeName,
    Outcome,
    Owner,
    Phase,
    SegmentRef,
    SegmentView,
)
from daemon.recovery import clear_late
from migration.base import (
    EngineUnreachableError,
    NodeUnfitError,
    NotSavedError,
    OrderRefusedError,
)
from migration.fake import Program
from tests.stage import Passed, Stage, await_condition

pytestmark = pytest.mark.loop

N1, N2 = NodeName("n1"), NodeName("n2")
PROGRAMS: dict[tuple[str, ...], Program] = {
    ("count",): Program(),
    ("short",): Program(seconds=30),
    ("fails",): Program(seconds=5, exit_code=3),
    ("hog",): Program(peak_memory_mib=100_000),
    ("stubborn",): Program(dumpable=False),
}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path, programs=PROGRAMS)
    yield stage
    stage.close()


def test_a_job_runs_to_its_end(stage: Stage) -> None:
    """
    A job that is left alone completes with its exit code and its whole log.
    """
    job = stage.submit("short")
    stage.settle()
    assert stage.state(job) is JobState.RUNNING
    stage.run(31)
    stage.settle()

    ended = stage.job(job)
    assert (JobState.COMPLETED, 0) == (ended.state, ended.exit_code)
    assert list(range(30)) == stage.counted(job)
    assert not stage.engine.living(job)


def test_a_failure_is_the_jobs_own(stage: Stage) -> None:
    """
    An exit code that is not zero fails the job, once.
    """
    job = stage.submit("fails")
    stage.settle()
    stage.run(6)
    stage.settle()

    assert (JobState.FAILED, 3) == (stage.state(job), stage.job(job).exit_code)
    assert [Outcome.FAILED] == [s.outcome for s in stage.store.segments(job)]


def test_a_claim_moves_the_job_without_a_gap(stage: Stage) -> None:
    """
    The job leaves the claimed node at once and goes on elsewhere where it stopped.
    """
    job = stage.submit("count")
    stage.settle()
    stage.run(10)
    first = stage.node(job)
    assert first is not None
    stage.claim(first)
    stage.settle()

    assert stage.state(job) is JobState.RUNNING
    assert first != stage.node(job)
    stage.run(10)
    log = stage.counted(job)
    assert list(range(len(log))) == log
    assert len(log) >= 19
    found = stage.job(job)
    assert (1, 1, timedelta()) == (found.evictions, found.migrations, found.lost)
    assert 1 == len(stage.engine.living(job))


def test_without_a_gap_the_job_waits_parked(stage: Stage) -> None:
    """
    Where every node is claimed the job is saved and waits.
    """
    job = stage.submit("count")
    stage.settle()
    stage.run(5)
    stage.claim("n1")
    stage.claim("n2")
    stage.settle()

    assert stage.state(job) is JobState.PARKED
    assert not stage.engine.living(job)


def test_all_jobs_of_a_node_leave_together(stage: Stage) -> None:
    """
    One action evicts all jobs of a claimed node.
    """
    jobs = [stage.submit("count") for _ in range(8)]
    stage.settle()
    here = [job for job in jobs if stage.node(job) == "n1"]
    stage.run(3)
    stage.claim("n1")
    vacations = [action for action in stage.look() if isinstance(action, Vacate)]

    assert 1 == len(vacations)
    assert here == [ref.job for ref in vacations[0].refs]


def test_cores_are_never_sold_twice(stage: Stage) -> None:
    """
    Jobs pack into nodes by cores, and the rest waits.
    """
    jobs = [stage.submit("count", cpus=3) for _ in range(3)]
    stage.settle()

    assert [JobState.RUNNING, JobState.RUNNING, JobState.QUEUED] == [stage.state(j) for j in jobs]


def test_a_silent_batch_system_starts_nothing(stage: Stage) -> None:
    """
    When the batch system stops answering nothing new is started, and what runs is kept.
    """
    running = stage.submit("count")
    stage.settle()
    stage.batch.cut()
    stage.look()
    waiting = stage.submit("count")
    stage.run(5)
    assert stage.state(waiting) is JobState.QUEUED

    stage.batch.restore()
    stage.run(3)
    assert [JobState.RUNNING] * 2 == [stage.state(running), stage.state(waiting)]


def test_too_long_a_silence_vacates(stage: Stage) -> None:
    """
    After its grace time a silent batch system gets all nodes back; no work is lost.
    """
    job = stage.submit("count")
    stage.settle()
    stage.batch.cut()
    stage.run(stage.policy.unknown_grace.total_seconds() + 5)

    assert stage.state(job) is JobState.PARKED
    assert timedelta() == stage.job(job).lost


def test_a_failed_checkpoint_leaves_the_job_until_the_deadline(stage: Stage) -> None:
    """
    What cannot be saved is kept frozen while there is time, then killed and counted as lost.
    """
    job = stage.submit("stubborn")
    stage.settle()
    stage.run(10)
    node = stage.node(job)
    assert node is not None
    stage.claim(node)
    stage.look()
    assert stage.state(job) is JobState.EVICTING
    assert stage.engine.living(job)

    stage.run(stage.policy.vacate.total_seconds() + 5)
    assert timedelta(seconds=10) <= stage.job(job).lost
    outcomes = [s.outcome for s in stage.store.segments(job)]
    assert Outcome.CRASHED is outcomes[0]
    assert 1 == len(stage.engine.living(job))


def test_a_claim_that_goes_away_lets_the_job_go_on(stage: Stage) -> None:
    """
    A frozen job that could not be saved is thawed when nobody wants its node any more.
    """
    job = stage.submit("count")
    stage.settle()
    stage.run(10)
    node = stage.node(job)
    assert node is not None
    stage.engine.fail("checkpoint", NotSavedError("No space left on device", frozen=True))
    priority = stage.claim(node)
    stage.look()
    assert stage.state(job) is JobState.EVICTING
    stage.model.end(priority)
    stage.settle()

    assert (stage.state(job), stage.node(job)) == (JobState.RUNNING, node)
    stage.run(5)
    log = stage.counted(job)
    assert list(range(len(log))) == log


def test_a_prolog_is_a_claim(stage: Stage) -> None:
    """
    A hook's call vacates its node although the batch system still calls it idle.
    """
    job = stage.submit("count")
    stage.settle()
    node = stage.node(job)
    assert node is not None
    now = stage.clock.now()
    stage.engine.run_prolog(NodeName(node))
    stage.observer.notice(Claim(node=NodeName(node), source=ClaimSource.PROLOG, at=now))
    stage.run(2)
    stage.settle()

    assert node != stage.node(job)
    assert stage.state(job) is JobState.RUNNING


def test_a_frozen_job_without_a_claim_is_evicted(stage: Stage) -> None:
    """
    A prolog that could not reach the daemon is noticed by what it did.
    """
    job = stage.submit("count")
    stage.settle()
    node = stage.node(job)
    assert node is not None
    stage.engine.run_prolog(NodeName(node))
    stage.look()

    assert stage.state(job) in {JobState.PARKED, JobState.RESUMING, JobState.RUNNING}
    assert Outcome.EVICTED is stage.store.segments(job)[0].outcome


def test_a_node_that_refuses_is_not_asked_again_at_once(stage: Stage) -> None:
    """
    A fault of a node is no fault of the job: it is placed elsewhere.
    """
    stage.engine.fail("place", NodeUnfitError("no space left on device"))
    job = stage.submit("count")
    stage.run(5)

    assert stage.state(job) is JobState.RUNNING
    assert 1 == len(stage.store.segments(job))


def test_an_unknown_image_fails_the_job_with_its_reason(stage: Stage) -> None:
    """
    What no node could do is the end of a job that has done nothing yet.
    """
    stage.engine.fail("place", OrderRefusedError("there is no image nope:1"))
    job = stage.submit("count")
    stage.settle()

    assert stage.state(job) is JobState.FAILED
    assert "nope:1" in stage.job(job).reason


def test_memory_beyond_the_limit_fails_with_advice(stage: Stage) -> None:
    """
    A job that the kernel kills for its memory fails and is told to ask for more.
    """
    job = stage.submit("hog")
    stage.settle()

    assert stage.state(job) is JobState.FAILED
    assert "--mem" in stage.job(job).reason


def test_a_killed_container_is_a_fault_of_the_node(stage: Stage) -> None:
    """
    SIGKILL from nobody knows where restarts the job and counts what was lost.
    """
    job = stage.submit("count")
    stage.settle()
    stage.run(10)
    ref = stage.engine.living(job)[0]
    stage.engine.kill(ref)
    stage.run(10)

    assert stage.state(job) is JobState.RUNNING
    assert timedelta(seconds=10) <= stage.job(job).lost
    assert [Outcome.CRASHED, Outcome.RUNNING] == [s.outcome for s in stage.store.segments(job)]
    log = stage.counted(job)
    assert list(range(len(log))) == log


def test_a_silent_engine_makes_its_jobs_unreachable_not_dead(stage: Stage) -> None:
    """
    A job whose engine does not answer is neither started elsewhere nor given up.
    """
    job = stage.submit("count")
    stage.settle()
    node = NodeName(stage.node(job) or "")
    stage.engine.cut(node)
    stage.run(stage.policy.silence.total_seconds() + 5)
    assert stage.state(job) is JobState.UNREACHABLE
    assert 1 == len(stage.engine.living(job))

    stage.engine.mend(node)
    stage.settle()
    assert stage.state(job) is JobState.RUNNING
    assert timedelta() == stage.job(job).lost
    assert [1] == [s.epoch for s in stage.store.segments(job)]


def test_a_lost_answer_to_a_start_is_no_second_start(stage: Stage) -> None:
    """
    When the engine starts a job and its answer is lost, the running job is adopted.
    """
    stage.engine.fail("place", EngineUnreachableError("the answer was lost"), late=True)
    job = stage.submit("count")
    stage.settle()

    assert stage.state(job) is JobState.RUNNING
    assert 1 == len(stage.engine.living(job))
    assert 1 == len(stage.store.segments(job))


def test_a_lost_answer_to_a_checkpoint_loses_nothing(stage: Stage) -> None:
    """
    A checkpoint that was committed while nobody listened is found by its receipt.
    """
    job = stage.submit("count")
    stage.settle()
    stage.run(10)
    node = stage.node(job)
    assert node is not None
    stage.engine.fail("checkpoint", EngineUnreachableError("the answer was lost"), late=True)
    stage.claim(node)
    stage.settle()

    assert stage.state(job) is JobState.RUNNING
    assert timedelta() == stage.job(job).lost
    log = stage.counted(job)
    assert list(range(len(log))) == log


@pytest.mark.parametrize("moment", ["placed", "evicting", "parked"])
def test_another_daemon_takes_over(stage: Stage, moment: str) -> None:
    """
    A daemon that ends leaves containers alone, and the next one adopts them.
    """
    job = stage.submit("count")
    stage.settle()
    stage.run(10)
    if moment == "evicting":
        node = stage.node(job)
        assert node is not None
        stage.engine.fail("checkpoint", NotSavedError("busy", frozen=True))
        stage.claim(node)
        stage.look()
    elif moment == "parked":
        stage.claim("n1", "n2", seconds=20)
        stage.settle()
    stage.reopen()
    stage.run(30)
    stage.settle()

    assert stage.state(job) is JobState.RUNNING
    assert timedelta() == stage.job(job).lost
    assert 1 == len(stage.engine.living(job))
    log = stage.counted(job)
    assert list(range(len(log))) == log


def test_a_new_daemon_asks_before_it_judges(stage: Stage) -> None:
    """
    An engine that has not been asked yet is not a silent one.
    """
    job = stage.submit("count")
    stage.settle()
    stage.reopen()

    assert () == stage.controller.tick()
    assert stage.state(job) is JobState.RUNNING


@pytest.mark.parametrize("state", ["queued", "running", "parked", "held"])
def test_cancel_ends_a_job_in_every_state(stage: Stage, state: str) -> None:
    """
    A cancelled job ends, and nothing of it is left anywhere.
    """
    if state == "queued":
        stage.claim("n1", "n2")
    job = stage.submit("count")
    stage.settle()
    if state == "parked":
        stage.claim("n1", "n2")
        stage.settle()
    if state == "held":
        stage.claim("n1", "n2")
        stage.store.record(Change(job=job, hold_wanted=True), now=stage.clock.now())
        stage.settle()
    stage.store.record(Change(job=job, cancel_wanted=True), now=stage.clock.now())
    stage.settle()

    assert stage.state(job) is JobState.CANCELLED
    assert not stage.engine.living(job)
    assert () == stage.engine.generations(job)


def test_a_held_job_waits_until_it_is_released(stage: Stage) -> None:
    """
    Hold keeps a waiting job from being placed; release lets it go.
    """
    stage.claim("n1", "n2", seconds=10)
    job = stage.submit("count")
    stage.store.record(Change(job=job, hold_wanted=True), now=stage.clock.now())
    stage.run(15)
    assert stage.state(job) is JobState.HELD

    stage.store.record(Change(job=job, hold_wanted=False), now=stage.clock.now())
    stage.run(3)
    assert stage.state(job) is JobState.RUNNING


def test_time_is_counted_over_all_segments(stage: Stage) -> None:
    """
    The limit holds for the sum of the segments.
    """
    job = stage.submit("count", time_limit=timedelta(seconds=20))
    stage.settle()
    stage.run(12)
    stage.claim(stage.node(job) or "")
    stage.run(12)

    assert stage.state(job) is JobState.TIMED_OUT
    assert not stage.engine.living(job)


def test_a_job_without_checkpoints_starts_again(stage: Stage) -> None:
    """
    ``--checkpoint none`` means: ended at once, started again, the log begins anew.
    """
    job = stage.submit("count", checkpoint=CheckpointMode.NONE)
    stage.settle()
    stage.run(10)
    stage.claim(stage.node(job) or "")
    stage.run(6)

    assert stage.state(job) is JobState.RUNNING
    log = stage.counted(job)
    assert list(range(len(log))) == log
    assert len(log) < 10
    assert timedelta(seconds=10) <= stage.job(job).lost


def test_a_job_that_saves_itself_keeps_its_whole_log(stage: Stage) -> None:
    """
    ``--checkpoint signal`` means: told, given time, started again; all it printed stays.
    """
    job = stage.submit("count", checkpoint=CheckpointMode.SIGNAL)
    stage.settle()
    stage.run(10)
    stage.claim(stage.node(job) or "")
    stage.run(6)

    assert stage.state(job) is JobState.RUNNING
    log = stage.counted(job)
    assert list(range(10)) == log[:10]
    assert 0 in log[10:]
    assert timedelta() == stage.job(job).lost


def test_a_job_that_saves_itself_is_moved(stage: Stage) -> None:
    """
    Started again on another node it has gone on there, as far as anybody can see.
    """
    job = stage.submit("count", checkpoint=CheckpointMode.SIGNAL)
    again = stage.submit("count", checkpoint=CheckpointMode.NONE)
    stage.run(3)
    stage.claim("n1", "n2", seconds=5)
    stage.run(2)
    stage.observer.set_drained(NodeName(stage.store.segments(job)[0].node), drained=True)
    stage.run(20)

    assert JobState.RUNNING is stage.state(job)
    assert [1, 0] == [stage.job(number).migrations for number in (job, again)]


def test_a_silent_node_leaves_a_placement_open(stage: Stage) -> None:
    """
    Where it is not known whether a job began, it is neither running nor placed anew.
    """
    stage.engine.before = lambda verb, node: stage.engine.cut(node) if verb == "place" else None
    job = stage.submit("count")
    stage.settle()
    node = NodeName(stage.node(job) or "")
    stage.run(stage.policy.silence.total_seconds() + 5)
    assert stage.state(job) is JobState.STARTING

    stage.engine.before = None
    stage.engine.mend(node)
    stage.run(10)
    assert stage.state(job) is JobState.RUNNING
    assert 1 == len(stage.store.segments(job))


def test_a_drained_node_is_left_alone(stage: Stage) -> None:
    """
    A node that an administrator drained loses its jobs and gets no new ones.
    """
    job = stage.submit("count")
    stage.settle()
    node = NodeName(stage.node(job) or "")
    stage.observer.set_drained(node, drained=True)
    stage.run(3)
    assert node != stage.node(job)

    stage.observer.set_drained(NodeName(stage.node(job) or ""), drained=True)
    stage.run(3)
    assert stage.state(job) is JobState.PARKED


def test_a_node_that_fails_its_canary_gets_no_job(stage: Stage) -> None:
    """
    Only a node that has proven itself is used, and the reason is kept.
    """
    stage.prober.reports[N1] = Passed(passed=False, reason="criu is missing")
    jobs = [stage.submit("count", cpus=4) for _ in range(2)]
    stage.run(5)

    assert {None, "n2"} == {stage.node(job) for job in jobs}
    assert "criu is missing" == stage.observer.look().engines[N1].why
    assert 1 == stage.prober.canaries.count(N1)


def test_a_short_priority_job_does_not_keep_a_node_closed(stage: Stage) -> None:
    """
    A prolog's claim ends with its job, although the hook had asked for a minute.
    """
    stage.observer.set_drained(N2, drained=True)
    now = stage.clock.now()
    until = now + timedelta(seconds=54)
    stage.observer.notice(Claim(node=N1, source=ClaimSource.PROLOG, at=now, deadline=until))
    job = stage.submit("count")
    stage.run(2)
    assert JobState.QUEUED is stage.state(job)

    stage.run(4)
    stage.settle()
    assert JobState.RUNNING is stage.state(job)


def test_an_administrators_claim_outlives_a_priority_job(stage: Stage) -> None:
    """
    A node that was vacated by hand stays empty for the time asked, whatever ran there meanwhile.
    """
    stage.observer.set_drained(N2, drained=True)
    now = stage.clock.now()
    until = now + timedelta(seconds=60)
    stage.observer.notice(Claim(node=N1, source=ClaimSource.OPERATOR, at=now, deadline=until))
    stage.claim("n1", seconds=10)
    job = stage.submit("count")
    stage.run(30)
    assert JobState.QUEUED is stage.state(job)

    stage.run(100)
    assert JobState.RUNNING is stage.state(job)


def test_a_canary_that_had_to_give_way_says_nothing(stage: Stage) -> None:
    """
    A node that was claimed during its probe is probed again as soon as it is free.
    """

    def claimed(node: NodeName) -> None:
        stage.prober.meanwhile = lambda _node: stage.prober.reports.clear()
        stage.prober.reports[node] = Passed(passed=False, reason="a prolog has claimed this node")
        now = stage.clock.now()
        until = now + timedelta(seconds=1)
        stage.observer.notice(Claim(node=node, source=ClaimSource.OPERATOR, at=now, deadline=until))

    stage.observer.set_drained(N2, drained=True)
    stage.prober.meanwhile = claimed
    job = stage.submit("count")
    stage.settle()
    assert JobState.QUEUED is stage.state(job)

    stage.run(90)
    assert "n1" == stage.node(job)
    assert 2 == stage.prober.canaries.count(N1)


def test_a_canary_that_had_to_give_way_is_sent_again(stage: Stage) -> None:
    """
    A canary that a short priority job interrupted has found nothing against its node.
    """
    reason = "a prolog has claimed this node"
    stage.prober.reports[N1] = Passed(passed=False, reason=reason, interrupted=True)
    stage.submit("count")
    stage.look()
    stage.look()
    stage.prober.reports.clear()
    stage.run(3)

    assert stage.observer.look().engines[N1].fit


def test_a_canary_is_not_run_again_after_a_restart(stage: Stage) -> None:
    """
    A new daemon trusts a canary as long as nothing on the node has changed.
    """
    stage.submit("count")
    stage.settle()
    before = list(stage.prober.canaries)
    stage.reopen()
    stage.submit("count")
    stage.settle()

    assert before == stage.prober.canaries


def test_ordinary_users_stay_off_nodes_that_cannot_move_them(stage: Stage) -> None:
    """
    Where CRIU cannot dump other users' processes only root's jobs are placed.
    """
    stage.prober.reports = {N1: Passed(other_users=False), N2: Passed(other_users=False)}
    job = stage.submit("count")
    spec = stage.job(job).spec
    other = stage.store.submit(
        replace(spec, owner=replace(spec.owner, uid=1000)), now=stage.clock.now()
    )
    stage.run(5)

    assert [JobState.RUNNING, JobState.QUEUED] == [stage.state(job), stage.state(other.id)]


def test_a_job_that_saves_itself_may_do_so_under_a_prolog(stage: Stage) -> None:
    """
    A job that a prolog has frozen is let go on so that it hears the signal.
    """
    job = stage.submit("count", checkpoint=CheckpointMode.SIGNAL)
    stage.settle()
    node = NodeName(stage.node(job) or "")
    thawed: list[str] = []
    stage.engine.before = lambda verb, _node: thawed.append(verb)
    stage.engine.run_prolog(node)
    stage.observer.notice(Claim(node=node, source=ClaimSource.PROLOG, at=stage.clock.now()))
    stage.look()

    assert "thaw" in thawed
    assert thawed.index("signal") < thawed.index("thaw") < thawed.index("kill")


def test_jobs_that_need_no_criu_run_where_only_root_is_moved(stage: Stage) -> None:
    """
    Only a job that CRIU must save is kept from a node that cannot save its user's processes.
    """
    stage.prober.reports = {N1: Passed(other_users=False), N2: Passed(other_users=False)}
    modes = [CheckpointMode.NONE, CheckpointMode.SIGNAL, CheckpointMode.CRIU]
    jobs = [stage.submit("count", owner=Stage.ordinary, checkpoint=mode) for mode in modes]
    stage.run(5)

    expected = [JobState.RUNNING, JobState.RUNNING, JobState.QUEUED]
    assert expected == [stage.state(job) for job in jobs]


def test_nothing_is_placed_on_a_node_wanted_soon(stage: Stage) -> None:
    """
    A gap shorter than the horizon is not worth a start.
    """
    soon = stage.clock.now() + stage.policy.horizon / 2
    for node in (N1, N2):
        stage.observer.notice(Claim(node=node, source=ClaimSource.PLANNED, at=soon))
    job = stage.submit("count")
    actions = [*stage.look(), *stage.look()]

    assert not [action for action in actions if isinstance(action, Place | Probe)]
    assert stage.state(job) is JobState.QUEUED


@pytest.mark.slow
def test_many_claims_lose_nothing(tmp_path: Path) -> None:
    """
    However often a job is moved, its log has no gap and it lives once.
    """
    stage = Stage(tmp_path, nodes=3, policy=Policy(horizon=timedelta()), programs=PROGRAMS)
    jobs = [stage.submit("count") for _ in range(4)]
    for turn in range(30):
        stage.claim(f"n{turn % 3 + 1}", seconds=4)
        stage.run(3)
        assert all(len(stage.engine.living(job)) <= 1 for job in jobs)
    stage.run(10)
    logs = [stage.counted(job) for job in jobs]
    stage.close()

    assert all(list(range(len(log))) == log for log in logs)
    assert all(stage_log for stage_log in logs)


def test_a_store_that_fails_for_a_moment_holds_nothing_up(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A full disk under the database delays an eviction; the job is not left alone for ever.
    """
    job = stage.submit("count")
    stage.settle()
    node = stage.node(job)
    stage.claim(node or "")

    def full(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(stage.store, "record", full)
        stage.look()
    assert stage.state(job) is JobState.RUNNING
    stage.run(5)

    assert stage.state(job) is JobState.RUNNING
    assert node != stage.node(job)


def test_a_checkpoint_by_another_hand_counts(stage: Stage) -> None:
    """
    What was saved while the job counted as running is resumed, and nothing is lost.
    """
    job = stage.submit("count")
    stage.settle()
    stage.run(10)
    stage.engine.checkpoint(stage.engine.living(job)[0], deadline_seconds=60)
    stage.run(5)

    assert stage.state(job) is JobState.RUNNING
    assert timedelta() == stage.job(job).lost
    assert 2 == len(stage.store.segments(job))


@pytest.mark.parametrize("mode", [CheckpointMode.NONE, CheckpointMode.SIGNAL])
def test_a_job_that_ended_just_before_its_eviction_is_not_run_again(
    stage: Stage, mode: CheckpointMode
) -> None:
    """
    An end that nobody had seen yet when the node was wanted is still the job's own.
    """
    job = stage.submit("short", checkpoint=mode)
    stage.settle()
    ref = stage.engine.living(job)[0]
    stage.clock.wait(31)
    _vacate(stage, ref, left=timedelta(seconds=60))
    stage.run(5)

    assert (JobState.COMPLETED, 0) == (stage.state(job), stage.job(job).exit_code)
    assert 1 == len(stage.store.segments(job))


def test_an_eviction_does_not_wait_behind_other_work(stage: Stage) -> None:
    """
    However much is under way on a node, what frees it begins at once.
    """
    job = stage.submit("count")
    stage.settle()
    ref = stage.engine.living(job)[0]
    go_on = threading.Event()

    def hang(verb: str, _node: NodeName) -> None:
        if verb == "remove":
            go_on.wait(20)

    stage.engine.before = hang
    for number in range(20):
        view = SegmentView(
            job=JobId(1000 + number), epoch=Epoch(1), container="x", phase=Phase.EXITED
        )
        stage.executor.perform(Sweep(node=ref.node, view=view, reason="left over"))
    stage.executor.perform(_vacation(stage, ref, left=timedelta(seconds=60)))
    await_condition(lambda: stage.state(job) is JobState.PARKED)
    go_on.set()
    stage.quiet()


def test_an_order_that_came_too_late_is_dropped(stage: Stage) -> None:
    """
    A node that was claimed after the decision, and before its turn, is not filled.
    """
    stage.look()
    job = stage.submit("count")
    stage.settle()
    stage.store.record(Change(job=job, cancel_wanted=True), now=stage.clock.now())
    stage.settle()
    late = stage.submit("count")
    now = stage.clock.now()
    stage.observer.notice(Claim(node=N1, source=ClaimSource.PROLOG, at=now))
    stage.executor.perform(
        Place(job=late, node=N1, epoch=Epoch(1), generation=None, seen=now, reason="it was idle")
    )
    stage.quiet()

    assert stage.state(late) is JobState.QUEUED
    assert not stage.engine.living(late)


def test_a_start_that_hangs_is_ended_before_the_job_goes_elsewhere(stage: Stage) -> None:
    """
    As long as a container that was never started exists its job is not free to be placed.
    """
    job = stage.submit("count")
    stage.engine.fail("place", EngineUnreachableError("no answer in time"))
    stage.look()
    stage.look()
    assert stage.state(job) is JobState.STARTING
    segment = stage.job(job).segment
    assert segment is not None
    seen: list[JobState] = []

    def note(verb: str, _node: NodeName) -> None:
        if verb == "remove":
            seen.append(stage.state(job))

    stage.engine.before = note
    view = SegmentView(job=job, epoch=segment.epoch, container="x", phase=Phase.CREATED)
    stage.executor.perform(Settle(ref=segment.ref, view=view, reason="never started"))
    stage.quiet()

    assert JobState.STARTING is seen[0]
    assert stage.state(job) is JobState.QUEUED


def test_an_adopted_job_keeps_to_its_image(stage: Stage) -> None:
    """
    The image is pinned although the answer that named it was lost.
    """
    stage.engine.fail("place", EngineUnreachableError("the answer was lost"), late=True)
    job = stage.submit("count")
    stage.settle()

    assert "sha256:img:1" == stage.job(job).image_digest


def test_what_follows_an_end_is_done_by_the_next_daemon(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A daemon that dies right after it wrote an end down leaves no secrets behind for good.
    """
    job = stage.submit("count")
    stage.tools.spool.put_env(job, {"TOKEN": "secret"})
    stage.settle()
    stage.claim("n1")
    stage.claim("n2")
    stage.settle()
    stage.store.record(Change(job=job, cancel_wanted=True), now=stage.clock.now())

    def die(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as killed:
        killed.setattr("daemon.acts.ending.finish", die)
        stage.look()
    assert stage.state(job) is JobState.CANCELLED
    assert stage.engine.generations(job)
    stage.reopen()
    stage.settle()

    assert not stage.engine.generations(job)
    assert {} == stage.tools.spool.env(job)
    assert () == stage.store.unfinished()


def test_a_log_that_could_not_be_kept_at_once_is_kept_later(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Neither the log nor the submitter's output file lacks what was printed last.
    """
    written: list[bytes] = []

    def write(_self: OutputWriter, _path: str, _owner: Owner, chunks: Iterable[bytes]) -> None:
        written.append(b"".join(chunks))

    monkeypatch.setattr(OutputWriter, "write", write)
    job = stage.submit("short", output="/out")
    stage.settle()
    for _ in range(2):
        stage.engine.fail("logs", EngineUnreachableError("no answer in time"))
    stage.run(31)
    assert stage.state(job) is JobState.COMPLETED
    stage.run(10)

    assert list(range(30)) == stage.counted(job)
    assert list(range(30)) == [int(n) for n in written[-1].split()]


def test_a_log_that_was_not_kept_is_read_where_it_is(stage: Stage) -> None:
    """
    Between an eviction and the sweep that keeps its log, readers see no gap.
    """
    job = stage.submit("count")
    stage.settle()
    stage.run(10)
    stage.engine.fail("logs", EngineUnreachableError("no answer in time"))
    stage.claim(stage.node(job) or "")
    stage.look()

    assert stage.state(job) is JobState.PARKED
    assert list(range(10)) == stage.counted(job)


def test_a_drain_during_a_probe_is_kept(stage: Stage) -> None:
    """
    What a canary found does not undo what an administrator said meanwhile.
    """
    stage.look()
    before = stage.observer.record_of(N1)
    stage.observer.set_drained(N1, drained=True)
    stage.observer.probed(replace(before, probe_ok=True), retry_at=None)

    assert stage.observer.record_of(N1).drained is not None
    assert stage.store.nodes()[N1].drained is not None


def test_a_daemon_that_slept_too_long_loses_no_work(stage: Stage) -> None:
    """
    When all that is known is too old jobs are saved, and not killed for being late.
    """
    job = stage.submit("count")
    stage.settle()
    stage.run(10)
    stage.batch.cut()
    stage.clock.wait(3600)
    stage.settle()

    assert stage.state(job) is JobState.PARKED
    assert timedelta() == stage.job(job).lost


def _vacation(stage: Stage, ref: SegmentRef, *, left: timedelta) -> Vacate:
    now = stage.clock.now()
    return Vacate(
        node=ref.node,
        refs=(ref,),
        deadline=now + left,
        seen=now,
        source=ClaimSource.ALLOCATED,
        reason="allocated",
    )


def _vacate(stage: Stage, ref: SegmentRef, *, left: timedelta) -> None:
    stage.executor.perform(_vacation(stage, ref, left=left))
    stage.quiet()


def test_what_is_tried_again_is_told(stage: Stage) -> None:
    """
    A job that waits for an answer says for which.
    """
    job = stage.submit("count")
    stage.settle()
    stage.engine.kill(stage.engine.living(job)[0])
    stage.engine.fail("kill", EngineUnreachableError("n1 gives no answer"))
    stage.look()

    assert "n1 gives no answer" in stage.job(job).reason
    stage.run(10)
    assert stage.state(job) is JobState.RUNNING


def test_what_an_ended_job_has_left_is_deleted_later(stage: Stage) -> None:
    """
    Its checkpoints are memory, so secrets: that they were out of reach at its end is no excuse.
    """
    job = stage.submit("short")
    stage.settle()
    stage.claim(stage.node(job) or "", seconds=5)
    stage.settle()
    stage.engine.hidden = True
    stage.store.record(Change(job=job, cancel_wanted=True), now=stage.clock.now())
    stage.settle()
    assert JobState.CANCELLED is stage.state(job)
    stage.engine.hidden = False
    assert (1,) == stage.engine.generations(job)

    stage.clock.wait(600)
    clear_late(stage.tools, before=stage.clock.now() - timedelta(seconds=300))

    assert () == stage.engine.generations(job)
    assert () == stage.store.unfinished()


def test_a_job_on_its_way_has_its_room(stage: Stage) -> None:
    """
    Ticks do not wait for placements: what one has promised the next does not give away.
    """
    held, asked = threading.Event(), threading.Event()

    def hold(_verb: str, _node: NodeName) -> None:
        if threading.current_thread().name.startswith("act-"):
            asked.set()
            held.wait(20)

    stage.settle()
    stage.engine.before = hold
    jobs = [stage.submit("count", cpus=4) for _ in range(4)]
    first = stage.controller.tick()
    assert asked.wait(20)
    second = stage.controller.tick()
    held.set()
    stage.settle()

    assert {N1, N2} == {action.node for action in first if isinstance(action, Place)}
    assert () == second
    assert 2 == sum(stage.state(job) is JobState.RUNNING for job in jobs)
