"""Accidents in random order on real parts, none of which may cost a job anything.

The same as tests/property/test_accidents.py, with fewer rounds and with what only real parts
have: killed programs, a prolog that runs, containers that are pruned.  Each schedule is made
from a number, so that it can be had again.
"""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from tests.integration import kills
from tests.integration.life import Watcher
from tests.integration.service_jobs import Steady
from tests.integration.service_kit import Service, story
from tests.testbed import wait_until
from tests.testbed.waiting import TookTooLongError

pytestmark = pytest.mark.bed

SCHEDULES = range(1, 21) if os.environ.get("STOPGAP_EXHAUSTIVE") == "1" else (1, 5)
STEPS = 12
JOBS = 3


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service.start(nodes=3) as service:
        yield service


class Fate:
    """Chooses what happens next, and where."""

    def __init__(self, service: Service, number: int) -> None:
        self._service = service
        self._chance = random.Random(number)  # noqa: S311  # a schedule, not a secret
        self.told: list[str] = []

    def strike(self) -> None:
        """Let one accident happen."""
        kind = self._chance.choice(list(_ACCIDENTS))
        held = sorted({node for node, _, _ in self._service.segments()})
        # Most of them hit somebody.
        places = held if held and self._chance.random() < 0.75 else self._service.bed.nodes
        node = self._chance.choice(places)
        self.told.append(f"{kind} {node}")
        _ACCIDENTS[kind](self._service, node)


def _claim(service: Service, node: str) -> None:
    service.claim(node, "sleep 1")


def _two_claims(service: Service, node: str) -> None:
    for each in [n for n in service.bed.nodes if n != node]:
        service.claim(each, "sleep 1")


def _drain(service: Service, node: str) -> None:
    with suppress(Exception):
        service.api.drain(node)


def _undrain(service: Service, node: str) -> None:
    with suppress(Exception):
        service.api.undrain(node)


def _kill_daemon(service: Service, _node: str) -> None:
    service.bed.kill("stopgapd")


def _kill_containerd(service: Service, node: str) -> None:
    service.bed.kill("containerd", node)


def _prune(service: Service, node: str) -> None:
    service.bed.docker(node, "container", "prune", "--force", check=False)


_ACCIDENTS: dict[str, Callable[[Service, str], None]] = {
    "claim": _claim,
    "claims of all others than": _two_claims,
    "drain": _drain,
    "undrain": _undrain,
    "kill stopgapd, not": _kill_daemon,
    "kill containerd of": _kill_containerd,
    "prune": _prune,
}


@pytest.mark.parametrize("number", SCHEDULES)
def test_accidents_cost_nothing(service: Service, number: int) -> None:
    """
    Never two, never none for good, nothing lost, one log.
    """
    jobs = [Steady(service, f"accident-{number}-{each}") for each in range(JOBS)]
    for job in jobs:
        service.wait_node(job.job)
    fate = Fate(service, number)
    try:
        with Watcher.watching(service.bed):
            for _ in range(STEPS):
                fate.strike()
                kills.revive(service)
                with suppress(TookTooLongError):
                    # With every node claimed there is no progress, and that is right.
                    jobs[0].wait_progress(20, seconds=3)
            for node in service.bed.nodes:
                service.api.undrain(node)
            for job in jobs:
                service.wait_node(job.job)
                job.wait_progress()
                job.finish()
        for job in jobs:
            found = service.job(job.job)
            assert 0 == found["lost_seconds"], story(found)
            assert list(range(len(job.counted()))) == job.counted(), story(found)
        assert sum(service.job(job.job)["evictions"] for job in jobs) >= JOBS
        wait_until(lambda: not kills.leftovers(service), 60, "the nodes to be empty")
    except BaseException:
        print("; ".join(fate.told))
        raise
    finally:
        kills.tidy(service)
