"""Ends that Docker has missed are found, and nobody else is disturbed."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from daemon.core.types import Epoch, JobId, Phase, SegmentView
from migration.docker import Docker
from migration.missed import MissedEnds
from migration.settings import EngineSettings
from tests.contract.clock import ManualClock
from tests.unit.engine_stub import Answer, StubEngine, serving

RUNS = SegmentView(job=JobId(7), epoch=Epoch(1), container="c", phase=Phase.RUNNING)
TOP = ("GET", "/containers/c/top")
KILL = ("POST", "/containers/c/kill")


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[StubEngine]:
    with serving(tmp_path / "docker.sock") as engine:
        engine.routes[KILL] = lambda _: (204, b"")
        yield engine


@pytest.fixture
def docker(stub: StubEngine) -> Iterator[Docker]:
    client = Docker(stub.address, EngineSettings(address=stub.address))
    yield client
    client.forget()


def _top(*processes: list[str]) -> Answer:
    return 200, {"Titles": ["PID"], "Processes": list(processes)}


def _signals(stub: StubEngine) -> int:
    return sum("/kill" in asked for asked in stub.asked)


def test_an_end_that_was_missed_is_brought_to_notice(stub: StubEngine, docker: Docker) -> None:
    """And again, should that have been in vain."""
    stub.routes[TOP] = lambda _: _top()
    clock = ManualClock()
    ends = MissedEnds(clock)

    ends.look(docker, [RUNS])
    assert 0 == _signals(stub)
    for _ in range(2):
        clock.wait(46)
        ends.look(docker, [RUNS])

    assert 2 == _signals(stub)


@pytest.mark.parametrize("answer", [_top(["1"]), (500, {"message": "containerd is away"})])
def test_nobody_else_is_disturbed(stub: StubEngine, docker: Docker, answer: Answer) -> None:
    """One that lives gets no signal, nor one of which nothing is known."""
    stub.routes[TOP] = lambda _: answer
    clock = ManualClock()
    ends = MissedEnds(clock)

    for _ in range(3):
        ends.look(docker, [RUNS])
        clock.wait(46)

    assert 0 == _signals(stub)


def test_looks_are_rare(stub: StubEngine, docker: Docker) -> None:
    """Each makes the node run a program."""
    stub.routes[TOP] = lambda _: _top(["1"])
    clock = ManualClock()
    ends = MissedEnds(clock)

    for _ in range(120):
        ends.look(docker, [RUNS])
        clock.wait(1)

    assert 2 == sum("/top" in asked for asked in stub.asked)


def test_each_gets_its_turn(stub: StubEngine, docker: Docker) -> None:
    """One in a survey: an engine that hangs holds a survey up for one of them at most."""
    views = [replace(RUNS, job=JobId(number), container=f"c{number}") for number in (1, 2, 3)]
    for view in views:
        stub.routes["GET", f"/containers/{view.container}/top"] = lambda _: _top(["1"])
    clock = ManualClock()
    ends = MissedEnds(clock)
    ends.look(docker, views)
    clock.wait(46)

    for _ in views:
        ends.look(docker, views)

    assert 3 == len({asked for asked in stub.asked if "/top" in asked})
