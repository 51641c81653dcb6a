"""Slurm's parser on bytes that no Slurm ever printed."""

import contextlib
import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adapters.base import UnparsableError
from adapters.slurm.parse import (
    JobRecord,
    NodeRecord,
    expand,
    parse_config,
    parse_jobs,
    parse_nodes,
    parse_version,
)
from adapters.slurm.picture import draw
from adapters.slurm.words import judge
from daemon.core.types import NodeState
from tests.property.mutated import mutations
from tests.unit.captured import DATA, decoded

LOOK = DATA / "slurm-22.05.8/look"
TAKEN = datetime(2026, 12, 1, tzinfo=UTC)
NODES = (LOOK / "drained/scontrol_show_node.out").read_bytes()
JOBS = (LOOK / "names/squeue.out").read_bytes()
FILLINGS = (b"\n", b"\nNodeName=n1 ", b" State=IDLE ", b"|", b" Reason=", b"=", b" ")
WORDS = (
    *("IDLE", "ALLOCATED", "MIXED", "DOWN", "UNKNOWN", "FUTURE", "ERROR", "CLOUD", "DYNAMIC_NORM"),
    *("DRAIN", "PLANNED", "RESERVED", "MAINTENANCE", "COMPLETING", "NOT_RESPONDING", "POWER_DOWN"),
    *("SOMETHING_NEW", "idle", "IDLE*", "IDLE-", "", "BLOCKED", "REBOOT_REQUESTED", "IDLE~"),
)


def whitelisted(record: NodeRecord) -> bool:
    base, *flags = record.words.split("+")
    unused = record.allocated_cpus == 0 and record.allocated_mib == 0
    return base == "IDLE" and set(flags) <= {"CLOUD", "DYNAMIC_NORM"} and unused


def pictured(nodes: bytes, jobs: bytes) -> None:
    """Read both answers; nothing but an UnparsableError may come of it."""
    records: tuple[NodeRecord, ...] = ()
    queue: tuple[JobRecord, ...] = ()
    with contextlib.suppress(UnparsableError):
        records = parse_nodes(decoded(nodes))
    with contextlib.suppress(UnparsableError):
        queue = parse_jobs(decoded(jobs))
    held = {node for job in queue if job.state == "RUNNING" for node in job.nodes}
    drawn = draw(records, queue, TAKEN)
    for record in records:
        node = drawn[record.name]
        if node.state is NodeState.IDLE:
            assert whitelisted(record)
            assert record.name not in held
        assert [c.at for c in node.claims] == sorted(c.at for c in node.claims)


@settings(max_examples=100, deadline=None)
@given(mutations(NODES, *FILLINGS), mutations(JOBS, *FILLINGS))
@example(NODES, JOBS)
@example(b"NodeName=\xff State=IDLE\n", b"1|RUNNING|9999999999999|n[1-\n")
@example(NODES + NODES, JOBS)
def test_any_bytes_are_understood_or_refused(nodes: bytes, jobs: bytes) -> None:
    """
    The parser raises one error only, and never takes a node for idle that is not listed as such.
    """
    pictured(nodes, jobs)


@settings(max_examples=100)
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map("+".join))
def test_idle_is_a_whitelist(words: str) -> None:
    """
    Of all combinations of words only three flags' worth of idle pass.
    """
    base, *flags = words.split("+")
    allowed = base == "IDLE" and set(flags) <= {"CLOUD", "DYNAMIC_NORM"}

    assert allowed == (judge(words) is NodeState.IDLE)
    assert judge(words, held=True) is not NodeState.IDLE


@settings(max_examples=100)
@given(st.text(max_size=60) | st.from_regex(r"[nN][\[\]0-9,\-a-z()]*", fullmatch=True))
def test_a_list_of_nodes_is_whole_or_refused(expression: str) -> None:
    """
    No name that comes out of a list has a bracket or a comma in it.
    """
    with contextlib.suppress(UnparsableError):
        for name in expand("squeue", expression):
            assert re.fullmatch(r"[A-Za-z0-9._-]+", name)


@settings(max_examples=100)
@given(st.text(max_size=100))
def test_small_answers_are_understood_or_refused(text: str) -> None:
    """
    Versions and configurations too.
    """
    parse_config(text)
    with contextlib.suppress(UnparsableError):
        assert parse_version(text)


@pytest.mark.parametrize("parse", [parse_nodes, parse_jobs])
def test_every_cut_is_noticed(parse: Callable[[str], object]) -> None:
    """
    An answer that ends in the middle of a line is refused, wherever that is.
    """
    text = decoded(NODES if parse is parse_nodes else JOBS)
    for end in range(1, len(text), 7):
        if text[end - 1] != "\n":
            with pytest.raises(UnparsableError):
                parse(text[:end])
