"""What all tests share: the bed, and what happens where there can be none."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.testbed import Bed, missing

# Examples of a property: few where somebody waits for the answer, many on demand.
_EXAMPLES = 25 if os.environ.get("STOPGAP_QUICK") == "1" else 100
if os.environ.get("STOPGAP_EXHAUSTIVE") == "1":
    _EXAMPLES = 1000
# How long an example takes says more about the machine's other work than about the code.
settings.register_profile(
    "stopgap",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=_EXAMPLES,
)
settings.load_profile("stopgap")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test of real parts where they cannot run; where they must, that is a failure."""
    if item.get_closest_marker("bed") is None or not (reasons := missing()):
        return
    if os.environ.get("STOPGAP_REQUIRE_BED") == "1":
        pytest.fail(f"no bed, but STOPGAP_REQUIRE_BED=1: {'; '.join(reasons)}", pytrace=False)
    pytest.skip("; ".join(reasons))


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    """A bed of four nodes without the daemon, shared by the tests of a module."""
    with Bed.start() as started:
        yield started


@pytest.fixture
def own_bed() -> Iterator[Bed]:
    """A bed of two nodes without the daemon, for one test that breaks it."""
    with Bed.start(nodes=2) as started:
        yield started
