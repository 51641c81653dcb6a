"""Jobs that are saved and go on: once for trial, then periodically, never in anybody's way."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from daemon.core.actions import Save, Vacate
from daemon.core.plan import plan
from daemon.core.policy import Policy
from daemon.core.types import (
    CheckpointKind,
    CheckpointMode,
    Claim,
    ClaimSource,
    JobId,
    JobState,
    Movable,
    NodeName,
)
from migration.base import EngineUnreachableError, NotSavedError
from migration.fake import Program
from tests.stage import Stage, await_condition

pytestmark = pytest.mark.loop

PROGRAMS: dict[tuple[str, ...], Program] = {
    ("count",): Program(dump_seconds=2.0),
    ("short",): Program(seconds=40),
    ("stubborn",): Program(dumpable=False, obstacle="it traces its child 12"),
}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path, programs=PROGRAMS)
    yield stage
    stage.close()


def _kinds(stage: Stage, job: JobId) -> list[CheckpointKind]:
    return [checkpoint.kind for checkpoint in stage.store.checkpoints(job)]


def _reasons(stage: Stage, job: JobId, event: str) -> list[str]:
    return [line.reason for line in stage.store.history(job) if line.event == event]


def test_a_job_is_tried_soon_after_its_start(stage: Stage) -> None:
    """
    It is known that it can be moved before anybody wants its node, and it does not notice.
    """
    job = stage.submit("count")
    stage.run(20)
    assert Movable.UNKNOWN is stage.job(job).movable

    stage.run(20)
    assert [CheckpointKind.TRIAL] == _kinds(stage, job)
    assert (Movable.YES, JobState.RUNNING) == (stage.job(job).movable, stage.state(job))
    assert 1 == len(stage.store.segments(job))
    assert 1 == len(stage.engine.living(job))


def test_a_job_that_cannot_be_saved_is_told_and_goes_on(stage: Stage) -> None:
    """
    The reason is there in plain words; the job loses nothing and is not told twice.
    """
    job = stage.submit("stubborn")
    stage.run(40)
    found = stage.job(job)
    assert (Movable.NO, "it traces its child 12") == (found.movable, found.movable_why)
    assert "cannot be moved: it traces its child 12" in found.reason
    assert JobState.RUNNING is found.state

    stage.run(2 * stage.policy.checkpoint_max.total_seconds(), step=300)
    assert JobState.RUNNING is stage.state(job)
    assert 1 == len(_reasons(stage, job, "not_kept"))
    assert 1 == len(stage.store.segments(job))


@pytest.mark.parametrize("mode", [CheckpointMode.SIGNAL, CheckpointMode.NONE])
def test_what_was_not_declared_is_not_done(stage: Stage, mode: CheckpointMode) -> None:
    """
    A job that is declared to save itself, or not at all, is never frozen for a checkpoint.
    """
    job = stage.submit("count", checkpoint=mode)
    stage.run(600, step=10)

    assert [] == _kinds(stage, job)
    assert Movable.UNKNOWN is stage.job(job).movable


def test_the_interval_follows_cost_and_losses(stage: Stage) -> None:
    """
    Young's square root, from what the last checkpoint cost: 2 s in 720 h are 54 minutes.
    """
    job = stage.submit("count")
    stage.run(60)
    stage.run(3000, step=20)
    assert [CheckpointKind.TRIAL] == _kinds(stage, job)

    stage.run(400, step=20)
    assert [CheckpointKind.TRIAL, CheckpointKind.PERIODIC] == _kinds(stage, job)


def test_a_declared_interval_is_kept(stage: Stage) -> None:
    """
    A submitter who knows better is believed.
    """
    job = stage.submit("count", checkpoint_every=timedelta(seconds=600))
    stage.run(1900, step=10)

    times = [checkpoint.time for checkpoint in stage.store.checkpoints(job)]
    gaps = [(later - first).total_seconds() for first, later in pairwise(times)]
    assert 4 == len(times)
    assert all(600 <= gap <= 630 for gap in gaps)


def test_a_wanted_node_is_left_alone(stage: Stage) -> None:
    """
    Where a claim is expected no checkpoint is begun that would be in its way.
    """
    job = stage.submit("count")
    stage.settle()
    soon = stage.clock.now() + stage.policy.horizon
    node = NodeName(stage.node(job) or "")
    stage.observer.notice(Claim(node=node, source=ClaimSource.PLANNED, at=soon))
    stage.run(stage.policy.horizon.total_seconds() - 30)

    assert [] == _kinds(stage, job)


def test_few_are_saved_at_once(tmp_path: Path) -> None:
    """
    Many jobs that are due share the file system in turns.
    """
    stage = Stage(tmp_path, programs=PROGRAMS, policy=Policy(saves_at_once=2))
    jobs = [stage.submit("count") for _ in range(6)]
    stage.settle()
    stage.clock.wait(31)
    counts = [sum(isinstance(action, Save) for action in stage.look()) for _ in range(3)]
    stage.close()

    assert [2, 2, 2] == counts
    assert all(stage.engine.generations(job) for job in jobs)


def test_a_save_that_cannot_be_does_not_take_anothers_turn(tmp_path: Path) -> None:
    """
    A node that is out of order keeps its jobs from being saved, and no others.
    """
    stage = Stage(tmp_path, programs=PROGRAMS, policy=Policy(saves_at_once=1))
    first, second = (stage.submit("count", cpus=4) for _ in range(2))
    stage.settle()
    later = stage.clock.now() + timedelta(hours=1)
    stage.observer.distrust(NodeName(stage.node(first) or ""), "out of order", until=later)
    stage.clock.wait(31)
    saved = [action.ref.job for action in stage.look() if isinstance(action, Save)]
    left = stage.look()
    stage.close()

    assert ([second], ()) == (saved, left)


def test_news_that_stop_a_save_put_it_off(stage: Stage) -> None:
    """
    What was dropped is tried again later, not at once.
    """
    job = stage.submit("count")
    stage.settle()
    stage.clock.wait(31)
    saves = [a for a in plan(stage.observer.look(), stage.policy) if isinstance(a, Save)]
    soon = stage.clock.now() + timedelta(days=1)
    node = NodeName(stage.node(job) or "")
    stage.observer.notice(Claim(node=node, source=ClaimSource.PLANNED, at=soon))
    stage.executor.perform(saves[0])
    stage.quiet()

    assert [] == _kinds(stage, job)
    assert stage.clock.now() + stage.tools.retry == stage.job(job).not_before


@dataclass
class HeldSave:
    """A save that is under way for as long as a test likes."""

    stage: Stage
    #: The save goes through when its job's eviction begins its own checkpoint.
    first: bool
    begun: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

    def __call__(self, verb: str, _node: NodeName) -> None:
        if verb == "save":
            self.begun.set()
            self.over.wait(20)
        elif verb == "checkpoint" and self.first:
            self.over.set()
            await_condition(lambda: "save" not in self.open_intents())

    def open_intents(self) -> list[str]:
        return [intent.action for intent in self.stage.store.unfinished()]


@pytest.mark.parametrize("first", [False, True], ids=["eviction first", "save first"])
def test_a_claim_does_not_wait_for_a_save(stage: Stage, first: bool) -> None:
    """
    The node's jobs are evicted at once; whoever comes second finds the other's outcome.
    """
    job = stage.submit("count")
    stage.settle()
    node = stage.node(job) or ""
    save = stage.engine.before = HeldSave(stage, first)
    stage.clock.wait(31)
    stage.observer.survey()
    stage.quiet()
    stage.controller.tick()
    save.begun.wait(20)

    stage.claim(node)
    stage.observer.ask_batch()
    await_condition(lambda: any(isinstance(a, Vacate) for a in stage.controller.tick()))
    await_condition(lambda: stage.state(job) is JobState.PARKED)
    save.over.set()
    stage.settle()

    assert JobState.RUNNING is stage.state(job)
    assert node != stage.node(job)
    assert 1 == len(stage.engine.living(job))
    assert (1, timedelta()) == (stage.job(job).evictions, stage.job(job).lost)
    kinds = [CheckpointKind.TRIAL] * first + [CheckpointKind.EVICTION]
    assert kinds == _kinds(stage, job)
    assert [] == save.open_intents()


def test_an_eviction_tells_that_a_job_can_be_moved(stage: Stage) -> None:
    """
    What was moved needs no trial.
    """
    job = stage.submit("count")
    stage.run(5)
    stage.claim(stage.node(job) or "")
    stage.run(60)

    assert Movable.YES is stage.job(job).movable
    assert [CheckpointKind.EVICTION] == _kinds(stage, job)


@pytest.mark.parametrize("why", ["No space left on device", "cancelled: its time was up"])
def test_a_full_disk_says_nothing_about_the_job(stage: Stage, why: str) -> None:
    """
    What is not the job's fault leaves its question open, and it is tried again.
    """
    stage.engine.fail("save", NotSavedError(why, frozen=False))
    job = stage.submit("count")
    stage.run(60)
    assert Movable.UNKNOWN is stage.job(job).movable
    assert [f"runs on {stage.node(job)}; not saved: {why}"] == _reasons(stage, job, "not_kept")

    stage.run(stage.policy.checkpoint_min.total_seconds() + 10, step=10)
    assert Movable.YES is stage.job(job).movable


def test_what_held_a_checkpoint_up_until_its_deadline_is_told(stage: Stage) -> None:
    """
    Out of time is no reason by itself, but what CRIU could not get past is.
    """
    why = "cancelled: its time was up; Error (criu/seize.c:335): zombie 12 found while seizing"
    stage.engine.fail("save", NotSavedError(why, frozen=False))
    job = stage.submit("count")
    stage.run(60)

    assert (Movable.NO, why) == (stage.job(job).movable, stage.job(job).movable_why)


def test_a_job_that_ends_during_its_trial_has_ended(stage: Stage) -> None:
    """
    An end is not an obstacle.
    """
    stage.engine.fail("save", NotSavedError("the job has ended", frozen=False))
    job = stage.submit("short")
    stage.settle()
    stage.clock.wait(41)
    ref = stage.job(job).segment
    assert ref is not None
    stage.executor.perform(
        Save(
            ref=ref.ref,
            kind=CheckpointKind.TRIAL,
            deadline=stage.clock.now() + timedelta(seconds=60),
            reason="due",
        )
    )
    stage.quiet()
    stage.settle()

    assert JobState.COMPLETED is stage.state(job)
    assert Movable.UNKNOWN is stage.job(job).movable


def test_a_lost_answer_to_a_save_changes_nothing(stage: Stage) -> None:
    """
    The job goes on, and the generation that nobody heard of is found when it is needed.
    """
    stage.engine.fail("save", EngineUnreachableError("no answer in time"), late=True)
    job = stage.submit("count")
    stage.run(45)
    assert JobState.RUNNING is stage.state(job)
    assert (1,) == stage.engine.generations(job)
    stage.engine.kill(stage.engine.living(job)[0])
    stage.run(5)

    assert JobState.RUNNING is stage.state(job)
    assert [None, 1] == [s.resumed_from for s in stage.store.segments(job)]
    assert stage.job(job).lost < timedelta(seconds=20)


def test_the_last_good_generation_is_kept(stage: Stage) -> None:
    """
    The one before the newest stays until there is a newer good one; older ones are deleted.
    """
    job = stage.submit("count", checkpoint_every=timedelta(seconds=300))
    stage.run(2000, step=10)

    left = stage.engine.generations(job)
    assert 2 == len(left)
    assert left[-1] == stage.job(job).generation
    assert 2 * (1 << 20) == stage.job(job).stored_bytes


def test_beyond_the_quota_only_evictions_are_saved(tmp_path: Path) -> None:
    """
    Periodic checkpoints pause where all the room is taken; an eviction never fails for it.
    """
    stage = Stage(tmp_path, programs=PROGRAMS, policy=Policy(max_stored=1 << 20))
    job = stage.submit("count", checkpoint_every=timedelta(seconds=300))
    stage.run(1000, step=10)
    assert [CheckpointKind.TRIAL] == _kinds(stage, job)
    stage.claim(stage.node(job) or "")
    stage.settle()
    found = (stage.state(job), stage.job(job).lost)
    stage.close()

    assert (JobState.RUNNING, timedelta()) == found


def test_one_users_checkpoints_do_not_stop_anothers(tmp_path: Path) -> None:
    """
    The room of each user is his own.
    """
    stage = Stage(tmp_path, programs=PROGRAMS, policy=Policy(max_stored_by_user=1 << 20))
    every = timedelta(seconds=300)
    first = stage.submit("count", checkpoint_every=every)
    stage.run(900, step=10)
    other = stage.submit("count", owner=Stage.ordinary, checkpoint_every=timedelta(seconds=600))
    stage.run(100, step=10)
    found = (_kinds(stage, first), _kinds(stage, other))
    stage.close()

    assert ([CheckpointKind.TRIAL], [CheckpointKind.TRIAL]) == found
