"""A checkpoint goes on only where nothing is missing that its machine had."""

from dataclasses import replace

import pytest

from daemon.core.fit import misfit
from daemon.core.types import Machine

HERE = Machine(architecture="x86_64", cgroup="2", cpu=frozenset({"avx2", "sse4_2"}), criu="4.2.1-3")


@pytest.mark.parametrize(
    "there",
    [
        HERE,
        replace(HERE, cpu=frozenset({"sse4_2"})),
        replace(HERE, criu="4.2"),
        replace(HERE, criu="3.17.1"),
    ],
    ids=["the same", "a lesser processor", "an older CRIU", "a much older CRIU"],
)
def test_what_is_there_may_be_more(there: Machine) -> None:
    """Nobody misses what he never had."""
    assert not misfit(there, HERE)


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (replace(HERE, cpu=HERE.cpu | {"avx512f"}), "its processor lacks avx512f"),
        (replace(HERE, architecture="aarch64"), "its architecture is x86_64"),
        (replace(HERE, cgroup="1"), "its cgroup version is 2"),
        (replace(HERE, criu="4.3"), "its CRIU is 4.2.1-3"),
    ],
)
def test_what_is_missing_is_named(there: Machine, said: str) -> None:
    """The reason says what, so that a person can tell which nodes are left."""
    assert said in misfit(there, HERE)


def test_a_node_without_criu_resumes_nothing() -> None:
    """Nor one of which it is not known."""
    assert misfit(HERE, replace(HERE, criu=""))
