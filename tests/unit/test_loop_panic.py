"""Panic: everything of ours off nodes within five seconds, and nothing lost in the records."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from daemon.api.ports import Caller, Refused
from daemon.api.schemas import PanicView
from daemon.config import Config
from daemon.core.types import JobId, JobState, NodeName, Outcome
from daemon.desk.desk import Desk
from daemon.desk.hooks import HookGuard
from daemon.desk.pulse import Pulse
from daemon.workshop import NodeWorkshop
from migration.fake import Program
from tests.contract.clock import ManualClock
from tests.stage import Stage
from tests.unit.test_loop_desk import Shelf

pytestmark = pytest.mark.loop

N1, N2 = NodeName("n1"), NodeName("n2")
ROOT = Caller(uid=0, gid=0, pid=1, name="root", groups=(), is_admin=True)
ADA = Caller(uid=1000, gid=1000, pid=1, name="ada", groups=(), is_admin=False)
PROGRAMS: dict[tuple[str, ...], Program] = {
    ("count",): Program(),
    ("stubborn",): Program(dumpable=False),
}
#: Promised, from the call.
LIMIT_SECONDS = 5.0


class TurningClock(ManualClock):
    """Has the daemon's loop turn, without waiting for what it began, whenever the desk waits."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._pause = threading.Event()
        #: Happens at each turn, with the seconds since the first.
        self.meanwhile: Callable[[float], None] = lambda _seconds: None
        self._began: float | None = None

    def now(self) -> datetime:
        return self._stage.clock.now()

    def monotonic(self) -> float:
        return self._stage.clock.monotonic()

    def wait(self, seconds: float) -> None:
        if threading.current_thread() is threading.main_thread():
            self._stage.observer.survey()
            self._stage.controller.tick()
        self._began = self.monotonic() if self._began is None else self._began
        self.meanwhile(self.monotonic() - self._began)
        self._pause.wait(0.01)
        self._stage.clock.wait(seconds)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path, programs=PROGRAMS)
    yield stage
    stage.engine.before = None
    stage.close()


@pytest.fixture
def clock(stage: Stage) -> TurningClock:
    return TurningClock(stage)


@pytest.fixture
def desk(stage: Stage, clock: TurningClock) -> Desk:
    return desk_of(stage, clock)


def desk_of(stage: Stage, clock: TurningClock) -> Desk:
    shelf = Shelf()
    pulse = Pulse(instance="test", adapter=stage.batch)
    pulse.watch(stage.observer)
    return Desk(
        tools=replace(stage.tools, clock=clock),
        config=Config(),
        policy=stage.policy,
        workshop=NodeWorkshop(shelf, shelf),  # type: ignore[arg-type]  # its canaries are not asked
        guard=HookGuard(lambda _node, _body, _signature: True),
        pulse=pulse,
    )


class Stuck:
    """Calls of one verb to the engines do not return until they are let go."""

    def __init__(self, stage: Stage, verb: str) -> None:
        self._verb = verb
        self.reached, self.free = threading.Event(), threading.Event()
        stage.engine.before = self._call

    def _call(self, verb: str, _node: NodeName) -> None:
        if verb == self._verb and not self.free.is_set():
            self.reached.set()
            self.free.wait(20)


def run_on_n1(stage: Stage, *programs: str) -> list[JobId]:
    stage.observer.set_drained(N2, drained=True)
    jobs = [stage.submit(program) for program in programs]
    stage.settle()
    stage.observer.set_drained(N2, drained=False)
    assert {"n1"} == {stage.node(job) for job in jobs}
    return jobs


def only(views: list[PanicView]) -> PanicView:
    (view,) = views
    return view


def assert_off(stage: Stage, view: PanicView) -> None:
    assert (True, "") == (view.empty, view.reason)
    assert view.seconds < LIMIT_SECONDS
    assert not [c for c in stage.engine.census(NodeName(view.node)).segments if c.processes]


def assert_goes_on(stage: Stage, job: JobId, node: str = "n2") -> None:
    """It runs once, elsewhere, and panic is no fault of its own."""
    stage.run(60)
    assert (JobState.RUNNING, node) == (stage.state(job), stage.node(job))
    assert 1 == len(stage.engine.living(job))
    assert 0 == stage.job(job).faults


def test_what_can_be_saved_is_and_the_rest_is_killed(stage: Stage, desk: Desk) -> None:
    """
    The node is empty in time, the jobs go on elsewhere, each from where it can.
    """
    good, bad = run_on_n1(stage, "count", "stubborn")
    view = only(desk.panic(ROOT, ["n1"]))

    assert_off(stage, view)
    assert ("n1", "panic", 1, 1) == (view.node, view.result, view.evicted, view.killed)
    for job in (good, bad):
        assert_goes_on(stage, job)
    assert [None, 1] == [s.resumed_from for s in stage.store.segments(good)]
    assert [None, None] == [s.resumed_from for s in stage.store.segments(bad)]
    assert Outcome.CRASHED is stage.store.segments(bad)[0].outcome


def test_it_lasts_until_it_is_said_to_be_over(
    stage: Stage, desk: Desk, clock: TurningClock
) -> None:
    """
    Not even another daemon places anything there; ``undrain`` is not enough.
    """
    (job,) = run_on_n1(stage, "count")
    desk.panic(ROOT, ["n1"])
    assert "already_panic" == only(desk.panic(ROOT, ["n1"])).result
    stage.claim("n2", seconds=100_000)
    stage.run(10)
    stage.reopen()
    desk = desk_of(stage, clock)
    stage.run(200)

    assert JobState.PARKED is stage.state(job)
    (node,) = (node for node in desk.nodes() if node.name == "n1")
    assert (True, "an administrator called panic") == (node.panicked, node.reason)
    assert [] != [line for line in desk.status().problems if "panic was called on 1" in line]
    with pytest.raises(Refused, match="panic was called on n1"):
        desk.undrain(ROOT, "n1")
    assert "over" == only(desk.calm(ROOT, ["n1"])).result
    assert "already_over" == only(desk.calm(ROOT, ["n1"])).result
    assert_goes_on(stage, job, "n1")


@pytest.mark.parametrize("verb", ["checkpoint", "freeze"])
def test_a_checkpoint_that_hangs_is_not_waited_for(stage: Stage, desk: Desk, verb: str) -> None:
    """
    The job is killed under it, and goes on once the checkpoint has come to its end.
    """
    (job,) = run_on_n1(stage, "count")
    stuck = Stuck(stage, verb)
    view = only(desk.panic(ROOT, ["n1"]))

    assert stuck.reached.is_set()
    assert_off(stage, view)
    assert (0, 1) == (view.evicted, view.killed)
    stuck.free.set()
    assert_goes_on(stage, job)


def test_an_eviction_with_more_time_is_not_waited_for(stage: Stage, desk: Desk) -> None:
    """
    A claim gave the job a minute; panic does not.
    """
    (job,) = run_on_n1(stage, "count")
    stuck = Stuck(stage, "checkpoint")
    stage.observer.set_drained(N1, drained=True)
    stage.controller.tick()
    assert stuck.reached.wait(10)

    assert_off(stage, only(desk.panic(ROOT, ["n1"])))
    stuck.free.set()
    assert_goes_on(stage, job)


def test_a_job_that_is_being_saved_goes_too(stage: Stage, desk: Desk) -> None:
    """
    A periodic checkpoint holds nobody up.
    """
    (job,) = run_on_n1(stage, "count")
    stuck = Stuck(stage, "save")
    stage.clock.wait(stage.policy.trial.total_seconds() + 1)
    stage.controller.tick()
    assert stuck.reached.wait(10)

    assert_off(stage, only(desk.panic(ROOT, ["n1"])))
    stuck.free.set()
    assert_goes_on(stage, job)


def test_an_order_under_way_is_no_proof_of_emptiness(
    stage: Stage, desk: Desk, clock: TurningClock
) -> None:
    """
    Nothing lives there yet; what comes of the order later is killed before the node is empty.
    """
    stage.claim("n2", seconds=100_000)
    stage.look()
    stage.settle()
    job = stage.submit("count")
    stuck = Stuck(stage, "place")
    stage.controller.tick()
    assert stuck.reached.wait(10)
    clock.meanwhile = lambda seconds: stuck.free.set() if seconds > 3 else None
    view = only(desk.panic(ROOT, ["n1"]))

    assert_off(stage, view)
    assert view.seconds > 3
    stage.run(30)
    assert () == stage.engine.living(job)
    assert 0 == stage.job(job).faults
    desk.calm(ROOT, ["n1"])
    assert_goes_on(stage, job, "n1")


def test_an_order_that_is_about_to_leave_does_not(stage: Stage, desk: Desk) -> None:
    """
    It was decided before, and its record comes after the node was found empty.
    """
    stage.claim("n2", seconds=100_000)
    stage.look()
    stage.settle()
    reached, free = threading.Event(), threading.Event()

    def before(_verb: str, _node: NodeName) -> None:
        if threading.current_thread().name.startswith("act-"):
            reached.set()
            free.wait(20)

    job = stage.submit("count")
    stage.engine.before = before
    stage.controller.tick()
    assert reached.wait(10)
    assert_off(stage, only(desk.panic(ROOT, ["n1"])))
    free.set()
    stage.run(30)

    assert [] == stage.engine.orders
    assert (JobState.QUEUED, 0) == (stage.state(job), stage.job(job).faults)
    desk.calm(ROOT, ["n1"])
    assert_goes_on(stage, job, "n1")


def test_an_order_that_stays_under_way_is_told(stage: Stage, desk: Desk) -> None:
    """
    The answer does not wait for ever, and does not call the node empty.
    """
    stage.claim("n2", seconds=100_000)
    stage.look()
    stage.settle()
    job = stage.submit("count")
    stuck = Stuck(stage, "place")
    stage.controller.tick()
    assert stuck.reached.wait(10)
    view = only(desk.panic(ROOT, ["n1"]))

    assert (False, f"orders for jobs {job} are still under way") == (view.empty, view.reason)
    stuck.free.set()
    stage.run(30)
    assert () == stage.engine.living(job)


def test_a_node_that_does_not_answer_is_not_called_empty(stage: Stage, desk: Desk) -> None:
    """
    It is told, the others are emptied, and what is found there later is killed.
    """
    (job,) = run_on_n1(stage, "count")
    stage.engine.cut(N1)
    first, second = desk.panic(ROOT, [])

    assert ("n1", False) == (first.node, first.empty)
    assert "does not answer" in first.reason
    assert_off(stage, second)
    stage.run(40)
    stage.engine.mend(N1)
    stage.run(30)
    assert () == stage.engine.living(job)


def test_a_survivor_is_told(stage: Stage, desk: Desk) -> None:
    """
    Not the kill counts, but what the node's cgroups say.
    """
    (job,) = run_on_n1(stage, "stubborn")
    stage.engine.harden(stage.engine.living(job)[0])
    view = only(desk.panic(ROOT, ["n1"]))

    assert view.empty is False
    assert "survived" in view.reason


def test_another_daemon_carries_on(stage: Stage) -> None:
    """
    One that was killed right after the wish was written down leaves nothing behind.
    """
    jobs = run_on_n1(stage, "count", "stubborn")
    stage.observer.set_panicked([N1], panicked=True)
    stage.reopen()
    stage.run(LIMIT_SECONDS, step=0.5)

    assert () == stage.engine.census(N1).segments
    for job in jobs:
        assert_goes_on(stage, job)


def test_all_nodes_are_those_not_heard_of_yet_too(stage: Stage, desk: Desk) -> None:
    """
    The batch system need not answer for it; the end on one node is not that on the others.
    """
    assert [] == desk.panic(ROOT, [])
    jobs = [stage.submit("count", cpus=3) for _ in range(2)]
    stage.run(30)
    assert {JobState.QUEUED} == {stage.state(job) for job in jobs}
    desk.calm(ROOT, ["n1"])
    stage.run(30)
    assert ["n1", None] == [stage.node(job) for job in jobs]
    desk.calm(ROOT, [])
    assert_goes_on(stage, jobs[1])


def test_a_name_that_is_none_keeps_no_other_from_it(stage: Stage, desk: Desk) -> None:
    """
    Nobody in a hurry types well.
    """
    run_on_n1(stage, "count")
    first, second = desk.panic(ROOT, ["n1", "n7"])

    assert_off(stage, first)
    assert ("n7", "no_such_node", None) == (second.node, second.result, second.empty)
    assert second.reason


def test_only_administrators_may(desk: Desk) -> None:
    """
    Users cannot take nodes away from each other.
    """
    for call in (desk.panic, desk.calm):
        with pytest.raises(Refused) as refused:
            call(ADA, ["n1"])
        assert 403 == refused.value.status
