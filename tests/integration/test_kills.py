"""Whoever is killed, at whatever moment of a move: one process tree of the job, and one log."""

import os
from collections.abc import Iterator

import pytest

from tests.integration import kills
from tests.integration.kills import EVICTION, RESUME, VICTIMS, Move
from tests.integration.life import Watcher
from tests.integration.service_jobs import Steady
from tests.integration.service_kit import Service, story
from tests.testbed import wait_until

pytestmark = pytest.mark.bed

EVERYTHING = os.environ.get("STOPGAP_EXHAUSTIVE") == "1"
_CHOSEN = {
    "stopgapd": "evicting frozen dumping committed receipt parked resuming entered restored awake",
    "dockerd": "claimed frozen dumping committed receipt created restoring restored awake",
    "containerd": "claimed frozen pages committed created restoring restored awake",
    "containerd-shim": "claimed frozen pages committed receipt restoring restored awake",
    "shim": "dumping generation pages dumped committed entered recorded restoring restored",
}
_MOMENTS = {**dict.fromkeys(EVICTION, 1), **dict.fromkeys(RESUME, 2)}
CASES = [
    pytest.param(victim, moment, id=f"{victim}-{moment}")
    for victim in VICTIMS
    for moment in (_MOMENTS if EVERYTHING else _CHOSEN[victim].split())
]


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service.start() as service:
        yield service


@pytest.fixture
def move(service: Service, request: pytest.FixtureRequest) -> Iterator[Move]:
    """A job that runs, and a bed in order after the test."""
    move = Move(service, request.node.callspec.id)
    yield move
    kills.tidy(service)


@pytest.mark.parametrize(("victim", "moment"), CASES)
def test_killed_in_the_midst(service: Service, move: Move, victim: str, moment: str) -> None:
    """
    Never two, never none for good, nothing lost.
    """
    epoch = _MOMENTS[moment]
    with Watcher.watching(service.bed):
        service.api.drain(move.source)
        kills.wait_moment(move, {**EVICTION, **RESUME}[moment], moment)
        VICTIMS[victim](move, epoch)
        kills.revive(service)
        service.wait_node(move.job, other_than=move.source)
        move.steady.wait_progress()
        move.steady.finish()
        wait_until(
            lambda: not kills.leftovers(service),
            60,
            f"nothing to be left: {kills.leftovers(service)}",
        )

    found = service.job(move.job)
    print(story(found))
    counted = move.steady.counted()
    if moment in {"claimed", "running"}:
        # It may have been killed while it ran, before the first call or after the last one.
        return
    assert 0 == found["lost_seconds"], story(found)
    assert list(range(len(counted))) == counted, story(found)


@pytest.mark.parametrize("victim", ["stopgapd", "dockerd"])
def test_killed_among_several(service: Service, move: Move, victim: str) -> None:
    """
    One job of the node is saved, the others are about to be: all of them go on elsewhere.
    """
    others = [Steady(service, f"several-{victim}-{number}") for number in (1, 2)]
    for job in others:
        assert move.source == service.wait_node(job.job)
        job.wait_progress()
    jobs = [move.steady, *others]

    def one_saved() -> bool:
        return any((service.store_of(job.job) / "1/manifest.json").exists() for job in jobs)

    with Watcher.watching(service.bed):
        service.api.drain(move.source)
        wait_until(one_saved, 60, "the first checkpoint", every=0.001)
        VICTIMS[victim](move, 1)
        kills.revive(service)
        for job in jobs:
            service.wait_node(job.job, other_than=move.source)
            job.wait_progress()
        for job in jobs:
            job.finish()
            found = service.job(job.job)
            assert 0 == found["lost_seconds"], story(found)
            counted = job.counted()
            assert list(range(len(counted))) == counted, story(found)
