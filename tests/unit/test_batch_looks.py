"""Asking the batch system: how often, and what a partial answer is good for."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import structlog

from adapters.base import UnreachableError
from adapters.mock_slurm.adapter import MockAdapter, MockSettings, build
from daemon.core.types import Cluster, JobState, NodeName
from daemon.looks.batch import BatchLooks
from migration.fake import Program
from tests.contract.clock import ManualClock
from tests.stage import Stage, await_condition

POLL = timedelta(seconds=15)


class Tardy(MockAdapter):
    """The cluster model behind a controller that takes its time."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(build(MockSettings(), clock), clock)
        self._time = clock
        self.seconds = 0.0
        self.partial = ""
        self.asked = 0

    def look(self) -> Cluster:
        self.asked += 1
        self._time.wait(self.seconds)
        return replace(super().look(), partial=self.partial)


@contextmanager
def looking(adapter: Tardy, clock: ManualClock) -> Iterator[BatchLooks]:
    looks = BatchLooks(
        adapter,
        ours=lambda _name, _partitions: True,
        idle_looks=1,
        clock=clock,
        poll=POLL,
        wake=lambda: None,
        lock=threading.RLock(),
    )
    looks.open()
    yield looks
    looks.close()


def polls(looks: BatchLooks, adapter: Tardy, clock: ManualClock, count: int) -> int:
    """Poll so many times and return how often the batch system was asked."""
    before = adapter.asked
    for _ in range(count):
        looks.ask()
        await_condition(lambda: not looks.asking)
        clock.wait(POLL.total_seconds())
    return adapter.asked - before


@pytest.mark.parametrize(
    ("seconds", "asked"),
    [
        (0.0, 12),
        (0.5, 12),
        # A twentieth of the time is 40 s: with the poll every third one.
        (2.0, 4),
        # However slow, it is asked again after three polls.
        (30.0, 4),
    ],
)
def test_a_slow_batch_system_is_asked_less_often(seconds: float, asked: int) -> None:
    """
    It works for stopgap for a twentieth of its time, and is never left alone for long.
    """
    clock = ManualClock()
    adapter = Tardy(clock)
    adapter.seconds = seconds
    with looking(adapter, clock) as looks:
        assert asked == polls(looks, adapter, clock, 12)
        assert seconds == looks.seconds


def test_one_that_is_quick_again_is_asked_as_often_as_before() -> None:
    """
    Slowness is told once, and forgotten with the first quick answer.
    """
    clock = ManualClock()
    adapter = Tardy(clock)
    adapter.seconds = 5.0
    with looking(adapter, clock) as looks, structlog.testing.capture_logs() as logs:
        polls(looks, adapter, clock, 8)
        adapter.seconds = 0.1
        polls(looks, adapter, clock, 4)
        assert 4 == polls(looks, adapter, clock, 4)

    assert 1 == [line["event"] for line in logs].count("batch.slow")


def test_a_failure_after_a_long_time_is_slow_too() -> None:
    """
    Time-outs do not pile up on a controller in trouble.
    """
    clock = ManualClock()
    adapter = Tardy(clock)
    adapter.seconds = 10.0
    adapter.cut()
    with looking(adapter, clock) as looks:
        assert 3 == polls(looks, adapter, clock, 9)
        assert "Unable to contact" in looks.trouble


def test_a_partial_answer_is_trouble_with_a_picture() -> None:
    """
    What it shows counts; nothing is started on it, and the reason is told.
    """
    clock = ManualClock()
    adapter = Tardy(clock)
    adapter.partial = "squeue gave no answer within 10 s"
    with looking(adapter, clock) as looks:
        polls(looks, adapter, clock, 1)
        assert adapter.partial == looks.trouble
        assert looks.cluster is not None

        adapter.partial = ""
        polls(looks, adapter, clock, 1)
        assert "" == looks.trouble


@pytest.mark.loop
def test_a_claim_in_a_partial_answer_counts(tmp_path: Path) -> None:
    """
    The node is vacated for it; nothing is placed anywhere until the answer is whole.
    """
    stage = Stage(tmp_path, programs={("count",): Program()}, nodes=2)
    whole = stage.batch.look
    job = stage.submit("count")
    stage.settle()
    node = stage.node(job)
    assert node is not None
    stage.batch.look = lambda: replace(whole(), partial="no jobs")  # type: ignore[method-assign]  # what a real one says when squeue fails
    stage.claim(node)
    stage.run(3)
    assert stage.state(job) is JobState.PARKED

    stage.batch.look = whole  # type: ignore[method-assign]  # it answers again
    stage.settle()
    assert stage.state(job) is JobState.RUNNING
    assert NodeName(str(stage.node(job))) != node
    stage.close()


def test_silence_is_no_answer_still() -> None:
    """
    Where nothing was learnt the last picture stays, as old as it is.
    """
    clock = ManualClock()
    adapter = Tardy(clock)
    with looking(adapter, clock) as looks:
        polls(looks, adapter, clock, 1)
        before = looks.cluster
        adapter.cut()
        with pytest.raises(UnreachableError):
            adapter.look()
        polls(looks, adapter, clock, 1)
        assert before is looks.cluster
