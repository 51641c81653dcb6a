"""A job that waits says why, in words and numbers that are true."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.core.explain import Waiting
from daemon.core.types import NodeName
from tests.stage import Passed, Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()


def _why(stage: Stage, job: int) -> str:
    return Waiting(stage.observer.look(), stage.policy).why(stage.job(job))  # type: ignore[arg-type]


def test_what_fits_nowhere_is_told(stage: Stage) -> None:
    """
    A job larger than every node is told so, not left to wait.
    """
    cores = stage.submit("count", cpus=5)
    memory = stage.submit("count", memory_mib=4000)
    stage.settle()

    assert "no node is large enough: it wants 5 cores, jobs get 4" == _why(stage, cores)
    assert "no node is large enough: it wants 4000 MiB, jobs get 3584" == _why(stage, memory)


def test_no_gap_is_told_with_numbers(stage: Stage) -> None:
    """
    Where no node is free the job says how many are idle.
    """
    stage.claim("n1", "n2")
    job = stage.submit("count")
    stage.settle()

    assert _why(stage, job).startswith("waits for a gap: 0 of 2 nodes are idle")


def test_full_nodes_are_told(stage: Stage) -> None:
    """
    Where nodes have room, but not enough, the job says how much.
    """
    for _ in range(2):
        stage.submit("count", cpus=3)
    job = stage.submit("count", cpus=2)
    stage.settle()

    assert "waits for a gap: 2 nodes have room, at most 1 cores" == _why(stage, job)


def test_a_user_who_cannot_be_moved_is_told(stage: Stage) -> None:
    """
    Where only root's jobs can be saved an ordinary user learns it.
    """
    stage.prober.reports = {NodeName(n): Passed(other_users=False) for n in ("n1", "n2")}
    job = stage.submit("count", owner=Stage.ordinary)
    stage.run(3)

    assert "only root's jobs" in _why(stage, job)


def test_silence_is_told(stage: Stage) -> None:
    """
    A batch system that does not answer is named as the reason.
    """
    stage.settle()
    stage.batch.cut()
    stage.run(stage.policy.stale.total_seconds() + 2)
    job = stage.submit("count")
    stage.look()

    assert "the batch system does not answer" in _why(stage, job)
