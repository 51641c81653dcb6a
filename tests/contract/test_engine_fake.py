"""The fake engine keeps the promises of the real one, and its knobs break what they say."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from daemon.core.types import (
    Epoch,
    Generation,
    JobId,
    JobSpec,
    NodeName,
    Owner,
    SegmentRef,
)
from migration.base import EngineUnreachableError, StartOrder, StillAliveError
from migration.fake import FakeEngine, Program
from tests.contract.clock import ManualClock
from tests.contract.engine import EngineContract
from tests.contract.engine_bench import Act, job_numbers
from tests.contract.engine_keeping import KeepingContract

PROGRAMS: dict[tuple[str, ...], Program] = {
    (Act.COUNT.value,): Program(line_seconds=0.1),
    (Act.WRITE.value,): Program(line_seconds=0.1, writes=True),
    (Act.FAIL.value,): Program(line_seconds=0.1, seconds=1.0, exit_code=3),
    (Act.HOG.value,): Program(peak_memory_mib=10_000),
}


class FakeBench:
    """Two nodes in memory."""

    here = NodeName("n1")
    there = NodeName("n2")

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.engine = FakeEngine(
            self.clock, PROGRAMS, images=frozenset({"counter"}), sources=frozenset()
        )
        self._job = job_numbers()

    def order(self, act: Act, node: NodeName) -> StartOrder:
        ref = SegmentRef(job=self._job(), epoch=Epoch(1), node=node)
        owner = Owner(uid=0, gid=0)
        spec = JobSpec(name=act.value, owner=owner, image="counter", command=(act.value,))
        return StartOrder(ref=ref, spec=spec, env={}, image_digest=None, seen=self.clock.now())

    def await_(self, condition: Callable[[], bool]) -> None:
        for _ in range(1000):
            if condition():
                return
            self.clock.wait(0.1)
        pytest.fail("it never came true")

    def cut(self, node: NodeName) -> None:
        self.engine.cut(node)

    def mend(self, node: NodeName) -> None:
        self.engine.mend(node)

    def run_prolog(self, node: NodeName) -> None:
        self.engine.run_prolog(node)

    def spoil(self, job: JobId, generation: Generation) -> None:
        self.engine.spoil(job, generation)

    def written(self, job: JobId) -> bytes:
        return self.engine.written(job)

    def meddle(self, job: JobId) -> str:
        self.engine.meddle(job, "/data/numbers was replaced")
        return "/data/numbers"


class TestFakeEngine(EngineContract, KeepingContract):
    """All promises, in memory."""

    @pytest.fixture
    def bench(self) -> FakeBench:
        return FakeBench()

    def test_a_lost_answer_has_taken_effect(self, bench: FakeBench) -> None:
        """The checkpoint is there although the caller was told nothing."""
        order = bench.order(Act.COUNT, bench.here)
        bench.engine.place(order)
        bench.engine.fail("checkpoint", EngineUnreachableError("cut off"), late=True)

        with pytest.raises(EngineUnreachableError):
            bench.engine.checkpoint(order.ref, deadline_seconds=60)

        assert bench.engine.settled(order.ref) is not None

    def test_an_orphan_is_in_the_census_only(self, bench: FakeBench) -> None:
        """Docker's word is no proof of death, here neither."""
        order = bench.order(Act.COUNT, bench.here)
        bench.engine.place(order)

        bench.engine.orphan(order.ref)

        assert () == bench.engine.survey(bench.here)
        assert [order.ref] == [s.ref for s in bench.engine.census(bench.here).segments]
        assert (order.ref,) == bench.engine.living(order.ref.job)

    def test_a_survivor_dies_with_its_node(self, bench: FakeBench) -> None:
        """What no kill can end, a reboot ends, and the boot id tells."""
        order = bench.order(Act.COUNT, bench.here)
        bench.engine.place(order)
        bench.engine.harden(order.ref)
        before = bench.engine.census(bench.here).boot_id

        with pytest.raises(StillAliveError):
            bench.engine.kill(order.ref)
        bench.engine.reboot(bench.here)

        assert () == bench.engine.living(order.ref.job)
        assert before != bench.engine.census(bench.here).boot_id

    def test_jobs_progress_with_the_clock(self, bench: FakeBench) -> None:
        """Neither more nor less than the time that passed while they were not frozen."""
        order = bench.order(Act.COUNT, bench.here)
        bench.engine.place(order)
        begin = bench.clock.now()

        bench.clock.wait(1.0)
        bench.engine.freeze(order.ref)
        bench.clock.wait(5.0)

        assert bench.clock.now() - begin == timedelta(seconds=6)
        assert b"".join(bench.engine.logs(order.ref)).endswith(b"8\n9\n")
