"""What every engine promises, as one suite for the fake and the real one.

A subclass gives a ``bench``: an engine, two nodes, and the same programs as
orders that its nodes can run.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Protocol

import pytest

from daemon.core.types import Epoch, Generation, JobId, Mount, NodeName, Phase, SegmentView
from migration.base import (
    CgroupCensus,
    Engine,
    EngineUnreachableError,
    NodeUnfitError,
    NotResumableError,
    NotSavedError,
    OrderRefusedError,
    StartOrder,
)


class Act(StrEnum):
    """The programs that a bench knows."""

    #: Prints 0, 1, 2 … a line each, many a second, for ever.
    COUNT = "count"
    #: Prints ten lines, 0 to 9, and ends with exit code 3.
    FAIL = "fail"
    #: Takes more memory than it was given.
    HOG = "hog"


class Bench(Protocol):
    """Two nodes to try an engine on."""

    here: NodeName
    there: NodeName

    @property
    def engine(self) -> Engine:
        """The engine on trial."""

    def order(self, act: Act, node: NodeName) -> StartOrder:
        """Return an order for a job that was never used before, epoch 1."""

    def await_(self, condition: Callable[[], bool]) -> None:
        """Let time pass until the condition holds; fail when it never does."""

    def cut(self, node: NodeName) -> None:
        """Make the node's engine unreachable."""

    def mend(self, node: NodeName) -> None:
        """Make it reachable again."""

    def run_prolog(self, node: NodeName) -> None:
        """Do what the batch system does before a priority job on that node."""

    def spoil(self, job: JobId, generation: Generation) -> None:
        """Damage a stored generation."""


class EngineContract:
    """Subclass once per engine."""

    def test_a_started_segment_is_listed_as_running(self, bench: Bench) -> None:
        """The survey shows what was placed, with job and epoch."""
        order = bench.order(Act.COUNT, bench.here)

        placed = bench.engine.place(order)

        view = _view(bench, order)
        assert Phase.RUNNING is view.phase
        assert placed.container == view.container
        assert placed.image_digest.startswith("sha256:")
        assert view.exit_code is None

    def test_an_end_is_seen_with_its_exit_code(self, bench: Bench) -> None:
        """A job that ends by itself keeps its exit code until it is removed."""
        order = bench.order(Act.FAIL, bench.here)

        bench.engine.place(order)
        bench.await_(lambda: _view(bench, order).phase is Phase.EXITED)

        assert 3 == _view(bench, order).exit_code
        assert not _view(bench, order).oom_killed
        assert 0 == _processes(bench, order)

    def test_too_much_memory_is_told_from_a_kill(self, bench: Bench) -> None:
        """The kernel's OOM killer is named, so that nobody resumes the job for ever."""
        order = bench.order(Act.HOG, bench.here)

        bench.engine.place(order)
        bench.await_(lambda: _view(bench, order).phase is Phase.EXITED)

        assert (137, True) == (_view(bench, order).exit_code, _view(bench, order).oom_killed)

    def test_logs_are_what_was_printed(self, bench: Bench) -> None:
        """Everything that the segment printed is there after its end."""
        order = bench.order(Act.FAIL, bench.here)

        bench.engine.place(order)
        followed = b"".join(bench.engine.logs(order.ref, follow=True))

        assert _lines(0, 10) == followed
        assert _lines(0, 10) == b"".join(bench.engine.logs(order.ref))

    def test_place_is_once(self, bench: Bench) -> None:
        """A repeated order changes nothing."""
        order = bench.order(Act.COUNT, bench.here)

        first = bench.engine.place(order)
        again = bench.engine.place(order)

        assert first.container == again.container
        assert 1 == len(_views(bench, order))

    def test_a_frozen_job_does_nothing(self, bench: Bench) -> None:
        """Freezing and thawing may be repeated."""
        order = bench.order(Act.COUNT, bench.here)
        bench.engine.place(order)
        bench.await_(lambda: _printed(bench, order) > 2)

        bench.engine.freeze(order.ref)
        bench.engine.freeze(order.ref)

        assert Phase.FROZEN is _view(bench, order).phase
        assert [True] == [s.frozen for s in _census(bench, order)]

        bench.engine.thaw(order.ref)
        bench.engine.thaw(order.ref)
        before = _printed(bench, order)
        bench.await_(lambda: _printed(bench, order) > before)

        assert Phase.RUNNING is _view(bench, order).phase

    def test_a_job_goes_on_elsewhere_without_a_gap(self, bench: Bench) -> None:
        """Checkpoint here, resume there: the log is one sequence."""
        order = bench.order(Act.COUNT, bench.here)
        placed = bench.engine.place(order)
        bench.await_(lambda: _printed(bench, order) > 2)

        saved = bench.engine.checkpoint(order.ref, deadline_seconds=60)
        bench.await_(lambda: _view(bench, order).phase is Phase.EXITED)

        assert 0 == _processes(bench, order)
        assert saved.checkpoint == bench.engine.settled(order.ref)
        assert order.ref.epoch == saved.checkpoint.epoch

        later = _next(order, bench.there, placed.image_digest, saved.checkpoint.generation)
        bench.engine.place(later)
        bench.await_(lambda: _printed(bench, later) > 2)
        bench.engine.kill(later.ref)

        log = b"".join(b"".join(bench.engine.logs(o.ref)) for o in (order, later))
        assert _lines(0, log.count(b"\n")) == log

    def test_a_frozen_job_can_be_saved(self, bench: Bench) -> None:
        """An eviction freezes first and saves then."""
        order = bench.order(Act.COUNT, bench.here)
        bench.engine.place(order)
        bench.await_(lambda: _printed(bench, order) > 2)

        bench.engine.freeze(order.ref)
        bench.engine.checkpoint(order.ref, deadline_seconds=60)

        assert 0 == _processes(bench, order)

    def test_a_repeated_checkpoint_tells_of_the_first(self, bench: Bench) -> None:
        """A caller that lost the answer may ask again."""
        order = bench.order(Act.COUNT, bench.here)
        bench.engine.place(order)

        first = bench.engine.checkpoint(order.ref, deadline_seconds=60)
        again = bench.engine.checkpoint(order.ref, deadline_seconds=60)

        assert first.checkpoint == again.checkpoint

    def test_what_has_ended_cannot_be_saved(self, bench: Bench) -> None:
        """A job that ended while we were asking has no checkpoint."""
        order = bench.order(Act.FAIL, bench.here)
        bench.engine.place(order)
        bench.await_(lambda: _view(bench, order).phase is Phase.EXITED)

        with pytest.raises(NotSavedError):
            bench.engine.checkpoint(order.ref, deadline_seconds=60)

        assert bench.engine.settled(order.ref) is None
        assert 3 == _view(bench, order).exit_code

    def test_a_kill_is_proven(self, bench: Bench) -> None:
        """After it nothing of the segment lives, however often it is asked."""
        order = bench.order(Act.COUNT, bench.here)
        bench.engine.place(order)
        bench.engine.freeze(order.ref)

        bench.engine.kill(order.ref)
        bench.engine.kill(order.ref)

        assert 0 == _processes(bench, order)
        assert bench.engine.settled(order.ref) is None

    def test_a_signal_reaches_the_job(self, bench: Bench) -> None:
        """SIGTERM ends a program that does not trap it, as on any machine."""
        order = bench.order(Act.COUNT, bench.here)
        bench.engine.place(order)
        bench.await_(lambda: _printed(bench, order) > 0)

        bench.engine.signal(order.ref, 15)
        bench.await_(lambda: _view(bench, order).phase is Phase.EXITED)

        assert 143 == _view(bench, order).exit_code

    def test_remove_leaves_nothing(self, bench: Bench) -> None:
        """A removed segment is not listed, and removing it again is no error."""
        order = bench.order(Act.COUNT, bench.here)
        bench.engine.place(order)
        bench.engine.kill(order.ref)

        bench.engine.remove(order.ref)
        bench.engine.remove(order.ref)

        assert [] == _views(bench, order)
        assert [] == _census(bench, order)

    def test_a_ticket_is_good_once(self, bench: Bench) -> None:
        """The same epoch never runs a second time."""
        order = bench.order(Act.COUNT, bench.here)
        bench.engine.place(order)
        bench.engine.kill(order.ref)
        bench.engine.remove(order.ref)

        with pytest.raises(NodeUnfitError):
            bench.engine.place(order)

        assert [] == _views(bench, order)

    def test_an_unknown_image_is_refused(self, bench: Bench) -> None:
        """The reason names the image; nothing is left behind."""
        order = bench.order(Act.COUNT, bench.here)
        order = replace(order, spec=replace(order.spec, image="nobody/has:this"))

        with pytest.raises(OrderRefusedError, match="nobody/has:this"):
            bench.engine.place(order)

        assert [] == _views(bench, order)

    def test_a_missing_mount_is_refused(self, bench: Bench) -> None:
        """No empty directory is made where the submitter's data should be."""
        order = bench.order(Act.COUNT, bench.here)
        mount = Mount(source="/nowhere/at/all", target="/data")
        order = replace(order, spec=replace(order.spec, mounts=(mount,)))

        with pytest.raises(OrderRefusedError, match="/nowhere/at/all"):
            bench.engine.place(order)

        assert [] == _views(bench, order)

    def test_a_damaged_generation_never_starts_the_job_from_the_beginning(
        self, bench: Bench
    ) -> None:
        """A resume that fails leaves no container and no process."""
        order = bench.order(Act.COUNT, bench.here)
        placed = bench.engine.place(order)
        bench.await_(lambda: _printed(bench, order) > 0)
        saved = bench.engine.checkpoint(order.ref, deadline_seconds=60)
        bench.spoil(order.ref.job, saved.checkpoint.generation)

        later = _next(order, bench.there, placed.image_digest, saved.checkpoint.generation)
        with pytest.raises(NotResumableError):
            bench.engine.place(later)

        assert [] == _views(bench, later)
        assert 0 == _processes(bench, later)

    def test_a_generation_that_does_not_exist_is_not_resumed(self, bench: Bench) -> None:
        """The same, for a number that nobody ever saved."""
        order = replace(bench.order(Act.COUNT, bench.here), generation=Generation(7))

        with pytest.raises(NotResumableError):
            bench.engine.place(order)

        assert [] == _views(bench, order)

    def test_an_order_older_than_a_prolog_is_refused(self, bench: Bench) -> None:
        """A priority job that came in between wins."""
        order = bench.order(Act.COUNT, bench.here)
        bench.run_prolog(bench.here)

        with pytest.raises(NodeUnfitError):
            bench.engine.place(order)

        assert [] == _views(bench, order)

    def test_silence_is_not_emptiness(self, bench: Bench) -> None:
        """An engine that does not answer never looks like a node without jobs."""
        order = bench.order(Act.COUNT, bench.here)
        bench.engine.place(order)
        bench.cut(bench.here)

        calls: list[Callable[[], object]] = [
            lambda: bench.engine.survey(bench.here),
            lambda: bench.engine.census(bench.here),
            lambda: bench.engine.place(bench.order(Act.COUNT, bench.here)),
            lambda: bench.engine.freeze(order.ref),
            lambda: bench.engine.kill(order.ref),
            lambda: bench.engine.checkpoint(order.ref, deadline_seconds=60),
            lambda: bench.engine.remove(order.ref),
        ]
        for call in calls:
            with pytest.raises(EngineUnreachableError):
                call()
        bench.mend(bench.here)

        assert Phase.RUNNING is _view(bench, order).phase

    def test_forgotten_generations_are_gone(self, bench: Bench) -> None:
        """All but the one that is kept; at the end all."""
        order = bench.order(Act.COUNT, bench.here)
        placed = bench.engine.place(order)
        first = bench.engine.checkpoint(order.ref, deadline_seconds=60).checkpoint.generation
        later = _next(order, bench.there, placed.image_digest, first)
        bench.engine.place(later)
        second = bench.engine.checkpoint(later.ref, deadline_seconds=60).checkpoint.generation
        assert second > first

        bench.engine.forget(order.ref.job, keep=second)
        third = _next(later, bench.here, placed.image_digest, first)
        with pytest.raises(NotResumableError):
            bench.engine.place(third)

        bench.engine.place(_next(third, bench.here, placed.image_digest, second))
        bench.engine.kill(_next(third, bench.here, placed.image_digest, second).ref)
        bench.engine.forget(order.ref.job)
        bench.engine.forget(order.ref.job)


def job_numbers(first: int = 1) -> Callable[[], JobId]:
    """Return a function that gives a new job number at each call."""
    numbers = itertools.count(first)
    return lambda: JobId(next(numbers))


def _next(order: StartOrder, node: NodeName, digest: str, generation: Generation) -> StartOrder:
    ref = replace(order.ref, epoch=Epoch(order.ref.epoch + 1), node=node)
    return replace(order, ref=ref, image_digest=digest, generation=generation)


def _views(bench: Bench, order: StartOrder) -> list[SegmentView]:
    found = bench.engine.survey(order.ref.node)
    return [v for v in found if (v.job, v.epoch) == (order.ref.job, order.ref.epoch)]


def _view(bench: Bench, order: StartOrder) -> SegmentView:
    (view,) = _views(bench, order)
    return view


def _census(bench: Bench, order: StartOrder) -> list[CgroupCensus]:
    return [s for s in bench.engine.census(order.ref.node).segments if s.ref == order.ref]


def _processes(bench: Bench, order: StartOrder) -> int:
    return sum(s.processes for s in _census(bench, order))


def _printed(bench: Bench, order: StartOrder) -> int:
    return b"".join(bench.engine.logs(order.ref)).count(b"\n")


def _lines(first: int, last: int) -> bytes:
    return b"".join(b"%d\n" % number for number in range(first, last))
