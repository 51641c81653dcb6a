"""Nodes that are not alike, and nodes that are at fault: jobs are spared both."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from daemon.core.explain import Waiting
from daemon.core.types import JobId, JobState, Machine, NodeName, Outcome
from migration.base import NodeUnfitError
from migration.fake import Program
from tests.stage import MACHINE, Stage

pytestmark = pytest.mark.loop

N1, N2, N3 = NodeName("n1"), NodeName("n2"), NodeName("n3")
PROGRAMS: dict[tuple[str, ...], Program] = {("count",): Program()}
RICH = replace(MACHINE, cpu=MACHINE.cpu | {"avx512f"})


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path, programs=PROGRAMS, nodes=3)
    yield stage
    stage.close()


def _why(stage: Stage, job: JobId) -> str:
    return Waiting(stage.observer.look(), stage.policy).why(stage.job(job))


def _close(stage: Stage, *nodes: NodeName) -> None:
    for node in nodes:
        stage.observer.set_drained(node, drained=True)


def _open(stage: Stage, *nodes: NodeName) -> None:
    for node in nodes:
        stage.observer.set_drained(node, drained=False)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (replace(MACHINE, criu="4.1"), "its CRIU is 4.1"),
        (replace(MACHINE, cgroup="1"), "its cgroup version is 1"),
        (replace(MACHINE, architecture="aarch64"), "its architecture is aarch64"),
        (replace(MACHINE, cpu=frozenset({"sse"})), "needs cpu flag avx"),
    ],
    ids=["criu", "cgroup", "architecture", "cpu"],
)
def test_a_parked_job_is_offered_only_what_fits(stage: Stage, other: Machine, told: str) -> None:
    """
    A checkpoint waits for a node that it fits, and says what it needs.
    """
    stage.prober.machines = {N2: other}
    _close(stage, N2, N3)
    job = stage.submit("count")
    stage.run(10)
    assert JobState.RUNNING is stage.state(job)
    _close(stage, N1)
    _open(stage, N2)
    stage.run(10)
    assert JobState.PARKED is stage.state(job)
    assert [Outcome.EVICTED] == [s.outcome for s in stage.store.segments(job)]
    assert 0 == stage.job(job).faults
    assert "fits none of the 1 nodes that have room" in _why(stage, job)
    stage.prober.machines[N1] = stage.prober.machines[N3] = other
    for node in (N1, N3):
        _open(stage, node)
        stage.engine.cut(node)
        stage.run(1)
        stage.engine.mend(node)
    stage.run(20)
    assert told in _why(stage, job)
    assert _why(stage, job).startswith("no node fits: ")

    stage.prober.machines[N3] = MACHINE
    stage.engine.cut(N3)
    stage.run(1)
    stage.engine.mend(N3)
    stage.run(20)
    assert (JobState.RUNNING, "n3") == (stage.state(job), stage.node(job))


def test_a_richer_node_fits(stage: Stage) -> None:
    """
    More flags than the checkpoint needs are no obstacle, fewer are.
    """
    stage.prober.machines = {N2: RICH}
    _close(stage, N2, N3)
    job = stage.submit("count")
    stage.run(10)
    _close(stage, N1)
    _open(stage, N2)
    stage.run(10)
    assert (JobState.RUNNING, "n2") == (stage.state(job), stage.node(job))

    _open(stage, N1)
    _close(stage, N2)
    stage.run(10)
    assert JobState.PARKED is stage.state(job)


def test_a_misfit_that_only_the_node_knows_is_no_fault(stage: Stage) -> None:
    """
    A node that has changed since it was asked refuses, is asked again, and is left alone.
    """
    _close(stage, N2, N3)
    job = stage.submit("count")
    stage.run(10)
    stage.prober.machines = {N2: replace(MACHINE, cpu=frozenset({"sse"}))}
    stage.prober.machines[N2] = MACHINE
    _open(stage, N2)
    stage.run(5)
    stage.prober.machines[N2] = replace(MACHINE, cpu=frozenset({"sse"}))
    _close(stage, N1)
    stage.run(60)

    assert JobState.PARKED is stage.state(job)
    assert 0 == stage.job(job).faults
    refusals = [line for line in stage.store.history(job) if "does not fit" in line.reason]
    assert 1 == len(refusals)


def test_an_illegal_instruction_after_a_move_is_the_moves_fault(stage: Stage) -> None:
    """
    The job goes back to its checkpoint, and never again to such a processor.
    """
    stage.prober.machines = {N2: RICH}
    _close(stage, N2, N3)
    job = stage.submit("count")
    stage.run(10)
    _close(stage, N1)
    _open(stage, N2)
    stage.run(10)
    assert "n2" == stage.node(job)
    stage.engine.end(stage.engine.living(job)[0], 132)
    stage.run(60)
    assert JobState.PARKED is stage.state(job)
    assert "fits none of the 1 nodes" in _why(stage, job)

    _open(stage, N3)
    stage.run(10)
    assert (JobState.RUNNING, "n3") == (stage.state(job), stage.node(job))
    assert [None, 1, 1] == [s.resumed_from for s in stage.store.segments(job)]


def test_an_illegal_instruction_of_the_job_is_its_own(stage: Stage) -> None:
    """
    At its start, and long after a move, it is an end like any other.
    """
    fresh, moved = stage.submit("count"), stage.submit("count")
    stage.run(5)
    stage.engine.end(stage.engine.living(fresh)[0], 132)
    stage.claim(stage.node(moved) or "", seconds=10)
    stage.run(stage.policy.sigill.total_seconds() + 60)
    stage.engine.end(stage.engine.living(moved)[0], 132)
    stage.run(5)

    assert [JobState.FAILED] * 2 == [stage.state(job) for job in (fresh, moved)]


def test_an_illegal_instruction_on_a_processor_like_before_is_the_jobs(stage: Stage) -> None:
    """
    Nothing about a move to the same kind of processor can have made it illegal.
    """
    job = stage.submit("count")
    stage.run(5)
    stage.claim(stage.node(job) or "", seconds=10)
    stage.run(5)
    assert 2 == len(stage.store.segments(job))
    stage.engine.end(stage.engine.living(job)[0], 132)
    stage.run(5)

    assert JobState.FAILED is stage.state(job)


def test_an_end_without_a_daemon_to_see_it_may_be_the_nodes(stage: Stage) -> None:
    """
    After a power cut under node and daemon Docker says 255 of what it did not see end.
    """
    cut = stage.submit("count")
    stage.run(10)
    stage.engine.end(stage.engine.living(cut)[0], 255)
    stage.reopen()
    own = stage.submit("count")
    stage.run(60)
    assert JobState.RUNNING is stage.state(cut)
    assert Outcome.CRASHED is stage.store.segments(cut)[0].outcome

    stage.engine.end(stage.engine.living(own)[0], 255)
    stage.run(5)
    assert JobState.FAILED is stage.state(own)


def test_a_node_that_refuses_everybody_is_at_fault(stage: Stage) -> None:
    """
    It swallows no more jobs, their faults are not counted, and a canary must vouch for it.
    """
    refusals = _refusing(stage, N1)
    _close(stage, N2, N3)
    jobs = [stage.submit("count", cpus=2) for _ in range(3)]
    stage.run(30)
    assert "refused several jobs in a row: its disk is broken" == _engine_why(stage, N1)
    assert 2 <= len(refusals) <= 4
    assert [0, 0, 0] == [stage.job(job).faults for job in jobs]
    canaries = stage.prober.canaries.count(N1)

    stage.engine.before = None
    _open(stage, N2, N3)
    stage.run(10)
    assert all(JobState.RUNNING is stage.state(job) for job in jobs)
    assert canaries == stage.prober.canaries.count(N1)
    stage.run(120, step=5)
    assert canaries + 1 == stage.prober.canaries.count(N1)


def _engine_why(stage: Stage, node: NodeName) -> str:
    return stage.observer.look().engines[node].why


def _refusing(stage: Stage, node: NodeName) -> list[NodeName]:
    """Let a node refuse every order, and return the list of its refusals."""
    refusals: list[NodeName] = []

    def refuse(verb: str, where: NodeName) -> None:
        if verb == "place" and where == node:
            refusals.append(where)
            raise NodeUnfitError("its disk is broken")

    stage.engine.before = refuse
    return refusals


def test_the_pause_of_a_node_doubles(stage: Stage) -> None:
    """
    A node that passes its canary and refuses again is asked less and less often.
    """
    _close(stage, N2, N3)
    refusals = _refusing(stage, N1)
    jobs = [stage.submit("count", memory_mib=512) for _ in range(4)]
    rounds = []
    for _ in range(4):
        stage.run(400, step=2)
        rounds.append(len(refusals))
        refusals.clear()

    assert rounds[0] > rounds[1]
    assert sum(rounds[1:]) <= 4 * 3
    assert 3 <= stage.prober.canaries.count(N1) <= 6
    assert [0] * 4 == [stage.job(job).faults for job in jobs]

    stage.engine.before = None
    stage.run(3600, step=60)
    assert all(JobState.RUNNING is found.state for found in stage.store.live_jobs())


def test_a_prologs_refusal_counts_for_nobody(stage: Stage) -> None:
    """
    An order that lost the race with a priority job is neither's fault.
    """
    _close(stage, N2, N3)
    stage.look()
    for _ in range(3):
        stage.engine.fail("place", NodeUnfitError("a prolog has claimed n1"))
    jobs = [stage.submit("count") for _ in range(3)]
    stage.run(20)

    assert [0, 0, 0] == [stage.job(job).faults for job in jobs]
    assert all(JobState.RUNNING is stage.state(job) for job in jobs)
    assert 1 == stage.prober.canaries.count(N1)


def test_one_broken_job_is_not_its_nodes_fault(stage: Stage) -> None:
    """
    A job that every node refuses is held, and others run on those nodes.
    """
    bad = stage.submit("count", image="bad:1")
    place = stage.engine.place

    def picky(order: object) -> object:
        if order.spec.image == "bad:1":  # type: ignore[attr-defined]  # a StartOrder
            raise NodeUnfitError("no start: something about this image")
        return place(order)  # type: ignore[arg-type]  # a StartOrder

    stage.engine.place = picky  # type: ignore[method-assign,assignment]  # one job is refused
    stage.run(30)
    good = stage.submit("count")
    stage.run(1500, step=10)

    assert JobState.HELD is stage.state(bad)
    assert JobState.RUNNING is stage.state(good)
    assert timedelta() == stage.job(good).lost
