"""What administrators keep free: nodes, room on nodes, times of day."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from daemon.config import Config, JobsSection, NodesSection, PolicySection
from daemon.core.explain import Waiting
from daemon.core.policy import Policy
from daemon.core.types import JobId, JobState, NodeName
from daemon.desk import views
from daemon.wiring import policy_of
from migration.fake import Program
from tests.stage import Stage

pytestmark = pytest.mark.loop

PROGRAMS: dict[tuple[str, ...], Program] = {("count",): Program()}


@contextmanager
def staged(folder: Path, policy: Policy, nodes: int = 3) -> Iterator[Stage]:
    stage = Stage(folder, programs=PROGRAMS, policy=policy, nodes=nodes)
    try:
        yield stage
    finally:
        stage.close()


def why(stage: Stage, job: JobId) -> str:
    return Waiting(stage.observer.look(), stage.policy).why(stage.job(job))


def places(stage: Stage, jobs: list[JobId]) -> list[str | None]:
    return [stage.node(job) for job in jobs]


def test_nodes_are_left_idle(tmp_path: Path) -> None:
    """
    Others are filled up; when a priority job takes an idle one, nothing is vacated for it.
    """
    with staged(tmp_path, Policy(leave_idle=1)) as stage:
        jobs = [stage.submit("count", cpus=2, memory_mib=64) for _ in range(5)]
        stage.run(30)
        assert ["n1", "n1", "n2", "n2", None] == places(stage, jobs)
        assert (
            "waits for a gap: 2 nodes have room, at most 0 cores; "
            "as many as 1 are left idle (policy.leave_idle)"
        ) == why(stage, jobs[4])

        stage.claim("n3", seconds=1000)
        stage.run(30)
        assert ["n1", "n1", "n2", "n2", None] == places(stage, jobs)
        assert all(JobState.RUNNING is stage.state(job) for job in jobs[:4])


def test_a_node_that_is_closed_to_us_is_idle_too(tmp_path: Path) -> None:
    """
    It is the priority jobs that are to find an idle node.
    """
    with staged(tmp_path, Policy(leave_idle=1), nodes=2) as stage:
        stage.observer.set_drained(NodeName("n2"), drained=True)
        job = stage.submit("count")
        stage.run(30)

        assert "n1" == stage.node(job)


def test_more_than_there_are_fills_nothing(tmp_path: Path) -> None:
    """
    That is a way to switch filling off.
    """
    with staged(tmp_path, Policy(leave_idle=9)) as stage:
        job = stage.submit("count")
        stage.run(30)

        assert JobState.QUEUED is stage.state(job)


def test_a_node_gets_only_so_many_jobs(tmp_path: Path) -> None:
    """
    However small they are.
    """
    policy = policy_of(Config(jobs=JobsSection(max_per_node=2)))
    with staged(tmp_path, policy) as stage:
        jobs = [stage.submit("count", cpus=1, memory_mib=16) for _ in range(7)]
        stage.run(30)

        assert ["n1", "n1", "n2", "n2", "n3", "n3", None] == places(stage, jobs)


@pytest.mark.parametrize(
    ("hours", "clock", "filled"),
    [
        ((), 12 * 60, True),
        (("20:00-06:00",), 12 * 60, False),
        (("20:00-06:00",), 20 * 60 - 1, False),
        (("20:00-06:00",), 20 * 60, True),
        (("20:00-06:00",), 0, True),
        (("20:00-06:00",), 6 * 60 - 1, True),
        (("20:00-06:00",), 6 * 60, False),
        (("12:00-13:00", "18:00-24:00"), 12 * 60, True),
        (("12:00-13:00", "18:00-24:00"), 13 * 60, False),
        (("12:00-13:00", "18:00-24:00"), 24 * 60 - 1, True),
        (("12:00-13:00", "18:00-24:00"), 0, False),
        (("00:00-24:00",), 24 * 60 - 1, True),
    ],
)
def test_nodes_are_filled_by_the_clock(
    tmp_path: Path, *, hours: tuple[str, ...], clock: int, filled: bool
) -> None:
    """
    Neither a job nor a canary begins at another time, and both ends are told apart.
    """
    with staged(tmp_path, policy_of(Config(nodes=NodesSection(hours=hours)))) as stage:
        stage.clock.wait(clock * 60)
        job = stage.submit("count")
        stage.run(10)

        assert filled is (JobState.RUNNING is stage.state(job))
        assert filled is bool(stage.prober.canaries)
        if not filled:
            told = "nothing is started at this time of day (nodes.hours)"
            assert told == why(stage, job)
            reasons = {n.reason for n in views.node_views(stage.observer.look(), stage.policy)}
            assert {told} == reasons


def test_jobs_run_on_after_the_hours(tmp_path: Path) -> None:
    """
    Only a claim ends them, and then they wait.
    """
    with staged(tmp_path, replace(Policy(), hours=((0, 60),))) as stage:
        job = stage.submit("count")
        stage.run(10)
        stage.clock.wait(3600)
        stage.run(60)
        assert (JobState.RUNNING, "n1") == (stage.state(job), stage.node(job))
        stage.claim("n1")
        stage.run(60)
        assert JobState.PARKED is stage.state(job)


def test_the_clock_is_that_of_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Midnight in UTC is noon where clocks are twelve hours ahead.
    """
    monkeypatch.setenv("TZ", "XST-12")
    time.tzset()
    try:
        with staged(tmp_path, Policy(hours=((12 * 60, 13 * 60),))) as stage:
            job = stage.submit("count")
            stage.run(10)
            assert JobState.RUNNING is stage.state(job)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_what_is_configured_counts() -> None:
    """
    Each key reaches its knob.
    """
    config = Config(policy=PolicySection(leave_idle=3, shadow=True))

    assert (3, True, 64, ()) == (
        policy_of(config).leave_idle,
        policy_of(config).shadow,
        policy_of(config).max_jobs_per_node,
        policy_of(config).hours,
    )
