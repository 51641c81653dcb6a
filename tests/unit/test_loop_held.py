"""Checkpoints that lie on the nodes themselves: where a job goes on, and what it waits for."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.core.explain import Waiting
from daemon.core.types import JobId, JobState, NodeName, Outcome
from migration.base import CheckpointAwayError, EngineError, StaleOrderError
from tests.stage import Stage

pytestmark = pytest.mark.loop


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    stage.engine.own_disks = True
    yield stage
    stage.close()


def _parked(stage: Stage) -> tuple[JobId, NodeName]:
    """Have priority jobs take all nodes for a while; return the job and its checkpoint's node."""
    job = stage.submit("count")
    stage.settle()
    node = NodeName(stage.node(job) or "")
    stage.claim("n1", "n2", seconds=30)
    stage.run(5)
    assert JobState.PARKED is stage.state(job)
    return job, node


def test_a_job_goes_on_where_its_checkpoint_lies(stage: Stage) -> None:
    """
    Of two free nodes it takes the one from which nothing has to be brought, however tight.
    """
    stage.submit("count", cpus=1)
    stage.settle()
    job = stage.submit("count", cpus=1)
    stage.settle()
    other = "n2" if stage.node(job) == "n1" else "n1"
    stage.engine.hold(job, NodeName(other))
    stage.claim("n1", "n2", seconds=30)
    stage.run(90)

    assert other == stage.node(job)


def test_a_job_waits_for_the_node_that_has_its_checkpoint(stage: Stage) -> None:
    """
    It is not tried again and again, it says for which node, and goes on once that answers.
    """
    job, node = _parked(stage)
    stage.engine.cut(node)
    stage.run(120)

    assert JobState.PARKED is stage.state(job)
    waiting = Waiting(stage.observer.look(), stage.policy)
    assert f"waits: its checkpoint lies on {node}, which does not answer" == waiting.why(
        stage.job(job)
    )
    assert 0 == stage.job(job).faults
    assert 1 == len(stage.engine.orders)

    stage.engine.mend(node)
    stage.run(60)
    assert JobState.RUNNING is stage.state(job)


@pytest.mark.parametrize("error", [CheckpointAwayError("away"), StaleOrderError("old news")])
def test_what_could_not_be_brought_yet_is_nobodys_fault(stage: Stage, error: EngineError) -> None:
    """
    The job is parked again as if nothing had been, and tried once more.
    """
    job, _ = _parked(stage)
    stage.engine.fail("place", error)
    stage.run(60)

    assert JobState.RUNNING is stage.state(job)
    assert 0 == stage.job(job).faults
    assert 1 == [str(error) in line.reason for line in stage.store.history(job)].count(True)


def test_the_checkpoint_of_a_dead_node_is_waited_for(stage: Stage) -> None:
    """
    An administrator's word ends the segment; the job goes on when the node is back, not before.
    """
    job = stage.submit("count")
    stage.run(60)
    node = NodeName(stage.node(job) or "")
    assert 1 == stage.job(job).generation
    stage.engine.switch_off(node)
    stage.run(stage.policy.silence.total_seconds() + 5)
    stage.observer.set_gone(node, gone=True)
    stage.run(60)

    assert JobState.PARKED is stage.state(job)
    assert [Outcome.CRASHED] == [s.outcome for s in stage.store.segments(job)]
    assert 1 == len(stage.engine.orders)

    stage.engine.mend(node)
    stage.run(60)
    assert JobState.RUNNING is stage.state(job)
    assert [None, 1] == [s.resumed_from for s in stage.store.segments(job)]
