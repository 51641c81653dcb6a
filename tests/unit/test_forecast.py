"""What is expected of gaps, and who gets which."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from daemon.core.actions import Place
from daemon.core.forecast import expected_gap, suited
from daemon.core.plan import plan
from daemon.core.policy import Policy
from daemon.core.types import (
    CheckpointMode,
    Cluster,
    EngineView,
    GapHistory,
    Job,
    JobId,
    JobSpec,
    JobState,
    Node,
    NodeName,
    NodeState,
    Owner,
    Snapshot,
)
from tests.stage import Stage

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BRIEF, LONG = NodeName("n1"), NodeName("n2")


def job(number: int, memory_mib: int, checkpoint: CheckpointMode = CheckpointMode.CRIU) -> Job:
    spec = JobSpec(
        name="j",
        owner=Owner(uid=1000, gid=1000),
        image="i",
        command=("c",),
        cpus=4,
        memory_mib=memory_mib,
        checkpoint=checkpoint,
    )
    return Job(id=JobId(number), spec=spec, state=JobState.QUEUED, submitted=NOW)


def placed(*jobs: Job) -> dict[int, str]:
    """Return which job is placed where on two nodes that are alike but for their past."""
    nodes = {
        name: Node(name=name, state=NodeState.IDLE, cpus=4, memory_mib=8192)
        for name in (BRIEF, LONG)
    }
    snapshot = Snapshot(
        now=NOW,
        cluster=Cluster(nodes=nodes, taken=NOW),
        settled=frozenset(nodes),
        engines={name: EngineView(node=name, reachable=True, fit=True) for name in nodes},
        jobs=jobs,
        gaps={
            BRIEF: GapHistory(idle_seconds=600, ended=10),
            LONG: GapHistory(idle_seconds=600_000, ended=10),
        },
    )
    actions = plan(snapshot, Policy())
    return {each.job: each.node for each in actions if isinstance(each, Place)}


@pytest.mark.parametrize("turned", [False, True])
def test_what_is_dear_to_evict_gets_the_long_gap(turned: bool) -> None:
    """
    Whoever was submitted first.
    """
    large, small = (2, 1) if turned else (1, 2)

    assert {large: LONG, small: BRIEF} == placed(job(large, 4096), job(small, 64))


def test_what_cannot_be_saved_is_dearest() -> None:
    """
    An eviction costs it all that it did.
    """
    found = placed(job(1, 4096), job(2, 64, CheckpointMode.NONE))

    assert {2: LONG, 1: BRIEF} == found


def test_the_more_is_known_the_less_the_usual_counts() -> None:
    """
    One short gap says little, a hundred say all.
    """
    once = expected_gap(GapHistory(idle_seconds=60, ended=1))
    often = expected_gap(GapHistory(idle_seconds=6000, ended=100))

    assert expected_gap(None) > once > often > 60


def test_among_equals_the_order_decides() -> None:
    """
    The same choice every time.
    """
    assert [0, 1, 2] == suited([5, 5, 5], [7, 7, 7])


@pytest.mark.loop
def test_the_daemon_learns_how_long_gaps_are(tmp_path: Path) -> None:
    """
    A node that was idle for 40 s until it was claimed has one gap of that length in its past.
    """
    stage = Stage(tmp_path)
    try:
        stage.look()
        stage.clock.wait(40)
        stage.claim("n1")
        stage.look()
        seen = stage.controller.seen
    finally:
        stage.close()

    assert seen is not None
    assert {"n1": GapHistory(idle_seconds=40, ended=1)} == dict(seen.gaps)
