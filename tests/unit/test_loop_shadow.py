"""Shadow mode: decisions on the live system, counted and not carried out."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from daemon.core.explain import Waiting
from daemon.core.history import Change
from daemon.core.policy import Policy
from daemon.core.shadow import Shadow
from daemon.core.types import JobState, NodeName
from daemon.desk.pulse import Pulse
from migration.fake import Program
from tests.stage import Stage

pytestmark = pytest.mark.loop

SHADOW = Policy(shadow=True)
PROGRAMS: dict[tuple[str, ...], Program] = {("count",): Program()}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path, programs=PROGRAMS, policy=SHADOW)
    yield stage
    stage.close()


def imagined(stage: Stage) -> Shadow:
    assert stage.controller.shadow is not None
    return stage.controller.shadow


def where(stage: Stage) -> dict[int, str]:
    return {job: at.node for job, at in imagined(stage).segments.items()}


def test_nothing_is_started_and_a_start_is_counted_once(stage: Stage) -> None:
    """
    Neither a job nor a canary, however long it lasts.
    """
    job = stage.submit("count")
    stage.run(120)

    assert [] == stage.engine.orders
    assert [] == stage.prober.canaries
    assert JobState.QUEUED is stage.state(job)
    assert 1 == imagined(stage).starts
    assert {job: "n1"} == where(stage)
    why = Waiting(stage.observer.look(), SHADOW).why(stage.job(job))
    assert "shadow mode: nothing is started" == why


def test_what_would_run_holds_its_place(stage: Stage) -> None:
    """
    Two nodes of four cores hold two jobs of three, and no third.
    """
    jobs = [stage.submit("count", cpus=3, memory_mib=64) for _ in range(5)]
    stage.run(60)

    assert {jobs[0]: "n1", jobs[1]: "n2"} == where(stage)
    assert 2 == imagined(stage).starts


def test_a_claim_evicts_what_would_be_there(stage: Stage) -> None:
    """
    It is counted for its node, and the job would go on elsewhere.
    """
    job = stage.submit("count")
    stage.run(10)
    stage.claim("n1", seconds=1000)
    stage.run(30)

    assert {"n1": 1} == imagined(stage).evictions
    assert 2 == imagined(stage).starts
    assert {job: "n2"} == where(stage)


def test_a_time_limit_ends_what_would_run(stage: Stage) -> None:
    """
    Its place is free for the next, and it does not begin again; moves do not make it longer.
    """
    limit = timedelta(seconds=60)
    first = stage.submit("count", cpus=3, time_limit=limit)
    second = stage.submit("count", cpus=3)
    third = stage.submit("count", cpus=3)
    stage.run(30)
    stage.claim("n1", "n2", seconds=20)
    stage.run(25)
    assert {"n1": 1, "n2": 1} == imagined(stage).evictions
    stage.run(15)
    assert first in where(stage)
    stage.run(20)

    assert {second, third} == set(where(stage))
    assert 5 == imagined(stage).starts


@pytest.mark.parametrize("wish", ["cancel_wanted", "hold_wanted"])
def test_what_is_not_to_run_leaves_its_place(stage: Stage, wish: str) -> None:
    """
    Wishes of users are carried out as ever.
    """
    jobs = [stage.submit("count", cpus=3) for _ in range(3)]
    stage.run(10)
    change = replace(Change(job=jobs[0]), **{wish: True})  # type: ignore[arg-type]  # both are flags
    stage.store.record(change, now=stage.clock.now())
    stage.run(10)

    assert {jobs[1]: "n2", jobs[2]: "n1"} == where(stage)


def test_what_was_found_running_is_looked_after(tmp_path: Path) -> None:
    """
    It does not stay in the way of a priority job; where it would go on is imagined.
    """
    stage = Stage(tmp_path, programs=PROGRAMS)
    job = stage.submit("count", cpus=3)
    stage.settle()
    assert "n1" == stage.node(job)
    stage.controller.adopt(SHADOW)
    other = stage.submit("count", cpus=3)
    stage.run(10)
    assert {other: "n2"} == where(stage)
    stage.claim("n1", seconds=100)
    stage.run(30)

    assert JobState.PARKED is stage.state(job)
    assert () == stage.engine.living(job)
    assert {} == imagined(stage).evictions
    stage.run(100)
    assert {job: "n1", other: "n2"} == where(stage)
    stage.controller.adopt(Policy())
    stage.run(30)
    assert stage.controller.shadow is None
    assert {"n1", "n2"} == {stage.node(job), stage.node(other)}
    stage.close()


def test_nothing_is_imagined_on_old_news(stage: Stage) -> None:
    """
    What would not be started is not counted.
    """
    stage.observer.set_drained(NodeName("n1"), drained=True)
    stage.observer.set_panicked([NodeName("n2")], panicked=True)
    stage.submit("count")
    stage.run(30)

    assert 0 == imagined(stage).starts


def test_the_status_tells(stage: Stage) -> None:
    """
    Administrators see it where they look first.
    """
    job = stage.submit("count")
    stage.run(10)
    stage.claim("n1", seconds=1000)
    stage.run(30)
    pulse = Pulse(instance="test", adapter=stage.batch)
    pulse.watch(stage.observer)
    pulse.ticked(stage.clock.now(), 0.0, stage.controller.shadow)
    told = pulse.status(())

    assert told.summary.startswith("shadow mode, nothing is started: ")
    assert told.shadow is not None
    assert (2, 1, {"n1": 1}) == (told.shadow.starts, told.shadow.running, told.shadow.evictions)
    assert {job: "n2"} == where(stage)
