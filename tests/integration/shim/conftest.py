"""Two nodes with the shim, and a job of the test's own."""

import itertools
import shutil
from collections.abc import Iterator

import pytest

from tests.integration.shim.kit import ShimNode
from tests.testbed import Bed

_jobs = itertools.count(100)


@pytest.fixture(scope="package")
def pair() -> Iterator[tuple[ShimNode, ShimNode]]:
    with Bed.start(nodes=2) as bed:
        first, second = (ShimNode(bed, name) for name in bed.nodes)
        first.install()
        second.install()
        yield first, second


@pytest.fixture
def job(pair: tuple[ShimNode, ShimNode]) -> Iterator[int]:
    """A job number of the test's own; afterwards nothing of the job is left."""
    number = next(_jobs)
    yield number
    for node in pair:
        for listed in node.api("GET", "/containers/json?all=1"):
            if listed["Names"][0].startswith(f"/{node.name}-{number}-"):
                node.remove(listed["Id"])
        for found in node.verb("census")["segments"]:
            if found["job"] == number:
                assert {"processes": 0} == node.verb("reap", number, found["epoch"])
        (node.install_dir / "state" / "prolog").unlink(missing_ok=True)
        node.configure()
    shutil.rmtree(pair[0].bed.checkpoints / str(number), ignore_errors=True)


@pytest.fixture
def one(pair: tuple[ShimNode, ShimNode]) -> ShimNode:
    return pair[0]


@pytest.fixture
def other(pair: tuple[ShimNode, ShimNode]) -> ShimNode:
    return pair[1]
