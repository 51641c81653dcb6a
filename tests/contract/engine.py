"""What every engine promises, as one suite for the fake and the real one.

A subclass gives a ``bench``: an engine, two nodes, and the same programs as
orders that its nodes can run.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from daemon.core.types import Generation, Mount, Phase
from migration.base import (
    EngineUnreachableError,
    NodeUnfitError,
    NotResumableError,
    NotSavedError,
    OrderRefusedError,
)
from tests.contract.engine_bench import (
    Act,
    Bench,
    census_of,
    lines,
    next_order,
    printed_by,
    processes_of,
    view_of,
    views_of,
)


class EngineContract:
    """Subclass once per engine."""

    def test_a_started_segment_is_listed_as_running(self, bench: Bench) -> None:
        """The survey shows what was placed, with job and epoch."""
        order = bench.order(Act.COUNT, bench.here)

        placed = bench.engine.place(order)

        view = view_of(bench, order)
        assert Phase.RUNNING is view.phase
        assert placed.container == view.container
        assert placed.image_digest.startswith("sha256:")
        assert view.exit_code is None

    def test_an_end_is_seen_with_its_exit_code(self, bench: Bench) -> None:
        """A job that ends by itself keeps its exit code until it is removed."""
        order = bench.order(Act.FAIL, bench.here)

        bench.engine.place(order)
        bench.await_(lambda: view_of(bench, order).phase is Phase.EXITED)

        assert 3 == view_of(bench, order).exit_code
        assert not view_of(bench, order).oom_killed
        assert 0 == processes_of(bench, order)

    def test_too_much_memory_is_told_from_a_kill(self, bench: Bench) -> None:
        """The kernel's OOM killer is named, so that nobody resumes the job for ever."""
        order = bench.order(Act.HOG, bench.here)

        bench.engine.place(order)
        bench.await_(lambda: view_of(bench, order).phase is Phase.EXITED)

        assert (137, True) == (view_of(bench, order).exit_code, view_of(bench, order).oom_killed)

    def test_logs_are_what_was_printed(self, bench: Bench) -> None:
        """Everything that the segment printed is there after its end."""
        order = bench.order(Act.FAIL, bench.here)

        bench.engine.place(order)
        followed = b"".join(bench.engine.logs(order.ref, follow=True))

        assert lines(0, 10) == followed
        assert lines(0, 10) == b"".join(bench.engine.logs(order.ref))

    def test_place_is_once(self, bench: Bench) -> None:
        """A repeated order changes nothing."""
        order = bench.order(Act.COUNT, bench.here)

        first = bench.engine.place(order)
        again = bench.engine.place(order)

        assert first.container == again.container
        assert 1 == len(views_of(bench, order))

    def test_a_frozen_job_does_nothing(self, bench: Bench) -> None:
        """Freezing and thawing may be repeated."""
        order = bench.order(Act.COUNT, bench.here)
        bench.engine.place(order)
        bench.await_(lambda: printed_by(bench, order) > 2)

        bench.engine.freeze(order.ref)
        bench.engine.freeze(order.ref)

        assert Phase.FROZEN is view_of(bench, order).phase
        assert [True] == [s.frozen for s in census_of(bench, order)]

        bench.engine.thaw(order.ref)
        bench.engine.thaw(order.ref)
        before = printed_by(bench, order)
        bench.await_(lambda: printed_by(bench, order) > before)

        assert Phase.RUNNING is view_of(bench, order).phase

    def test_a_job_goes_on_elsewhere_without_a_gap(self, bench: Bench) -> None:
        """Checkpoint here, resume there: the log is one sequence."""
        order = bench.order(Act.COUNT, bench.here)
        placed = bench.engine.place(order)
        bench.await_(lambda: printed_by(bench, order) > 2)

        saved = bench.engine.checkpoint(order.ref, deadline_seconds=60)
        bench.await_(lambda: view_of(bench, order).phase is Phase.EXITED)

        assert 0 == processes_of(bench, order)
        assert saved.checkpoint == bench.engine.settled(order.ref)
        assert order.ref.epoch == saved.checkpoint.epoch

        later = next_order(order, bench.there, placed.image_digest, saved.checkpoint.generation)
        bench.engine.place(later)
        bench.await_(lambda: printed_by(bench, later) > 2)
        bench.engine.kill(later.ref)

        log = b"".join(b"".join(bench.engine.logs(o.ref)) for o in (order, later))
        assert lines(0, log.count(b"\n")) == log

    def test_a_frozen_job_can_be_saved(self, bench: Bench) -> None:
        """An eviction freezes first and saves then."""
        order = bench.order(Act.COUNT, bench.here)
        bench.engine.place(order)
        bench.await_(lambda: printed_by(bench, order) > 2)

        bench.engine.freeze(order.ref)
        bench.engine.freeze(order.ref)
        bench.engine.checkpoint(order.ref, deadline_seconds=60)

        assert 0 == processes_of(bench, order)

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
        bench.await_(lambda: view_of(bench, order).phase is Phase.EXITED)

        with pytest.raises(NotSavedError):
            bench.engine.checkpoint(order.ref, deadline_seconds=60)

        assert bench.engine.settled(order.ref) is None
        assert 3 == view_of(bench, order).exit_code

    def test_a_kill_is_proven(self, bench: Bench) -> None:
        """After it nothing of the segment lives, however often it is asked."""
        order = bench.order(Act.COUNT, bench.here)
        bench.engine.place(order)
        bench.engine.freeze(order.ref)

        bench.engine.kill(order.ref)
        bench.engine.kill(order.ref)

        assert 0 == processes_of(bench, order)
        assert bench.engine.settled(order.ref) is None

    def test_a_signal_reaches_the_job(self, bench: Bench) -> None:
        """SIGTERM ends a program that does not trap it, as on any machine."""
        order = bench.order(Act.COUNT, bench.here)
        bench.engine.place(order)
        bench.await_(lambda: printed_by(bench, order) > 0)

        bench.engine.signal(order.ref, 15)
        bench.await_(lambda: view_of(bench, order).phase is Phase.EXITED)

        assert 143 == view_of(bench, order).exit_code

    def test_remove_leaves_nothing(self, bench: Bench) -> None:
        """A removed segment is not listed, and removing it again is no error."""
        order = bench.order(Act.COUNT, bench.here)
        bench.engine.place(order)
        bench.engine.kill(order.ref)

        bench.engine.remove(order.ref)
        bench.engine.remove(order.ref)

        assert [] == views_of(bench, order)
        assert [] == census_of(bench, order)

    def test_a_ticket_is_good_once(self, bench: Bench) -> None:
        """The same epoch never runs a second time."""
        order = bench.order(Act.COUNT, bench.here)
        bench.engine.place(order)
        bench.engine.kill(order.ref)
        bench.engine.remove(order.ref)

        with pytest.raises(NodeUnfitError):
            bench.engine.place(order)

        assert [] == views_of(bench, order)

    def test_an_unknown_image_is_refused(self, bench: Bench) -> None:
        """The reason names the image; nothing is left behind."""
        order = bench.order(Act.COUNT, bench.here)
        order = replace(order, spec=replace(order.spec, image="nobody/has:this"))

        with pytest.raises(OrderRefusedError, match="nobody/has:this"):
            bench.engine.place(order)

        assert [] == views_of(bench, order)

    def test_a_missing_mount_is_refused(self, bench: Bench) -> None:
        """No empty directory is made where the submitter's data should be."""
        order = bench.order(Act.COUNT, bench.here)
        mount = Mount(source="/nowhere/at/all", target="/data")
        order = replace(order, spec=replace(order.spec, mounts=(mount,)))

        with pytest.raises(OrderRefusedError, match="/nowhere/at/all"):
            bench.engine.place(order)

        assert [] == views_of(bench, order)

    def test_a_damaged_generation_never_starts_the_job_from_the_beginning(
        self, bench: Bench
    ) -> None:
        """A resume that fails leaves no container and no process."""
        order = bench.order(Act.COUNT, bench.here)
        placed = bench.engine.place(order)
        bench.await_(lambda: printed_by(bench, order) > 0)
        saved = bench.engine.checkpoint(order.ref, deadline_seconds=60)
        bench.spoil(order.ref.job, saved.checkpoint.generation)

        later = next_order(order, bench.there, placed.image_digest, saved.checkpoint.generation)
        with pytest.raises(NotResumableError):
            bench.engine.place(later)

        assert [] == views_of(bench, later)
        assert 0 == processes_of(bench, later)

    def test_a_generation_that_does_not_exist_is_not_resumed(self, bench: Bench) -> None:
        """The same, for a number that nobody ever saved."""
        order = replace(bench.order(Act.COUNT, bench.here), generation=Generation(7))

        with pytest.raises(NotResumableError):
            bench.engine.place(order)

        assert [] == views_of(bench, order)

    def test_an_order_older_than_a_prolog_is_refused(self, bench: Bench) -> None:
        """A priority job that came in between wins."""
        order = bench.order(Act.COUNT, bench.here)
        bench.run_prolog(bench.here)

        with pytest.raises(NodeUnfitError):
            bench.engine.place(order)

        assert [] == views_of(bench, order)

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
            lambda: bench.engine.save(order.ref, deadline_seconds=60),
            lambda: bench.engine.remove(order.ref),
        ]
        for call in calls:
            with pytest.raises(EngineUnreachableError):
                call()
        bench.mend(bench.here)

        assert Phase.RUNNING is view_of(bench, order).phase

    def test_forgotten_generations_are_gone(self, bench: Bench) -> None:
        """All but the one that is kept; at the end all."""
        order = bench.order(Act.COUNT, bench.here)
        placed = bench.engine.place(order)
        first = bench.engine.checkpoint(order.ref, deadline_seconds=60).checkpoint.generation
        later = next_order(order, bench.there, placed.image_digest, first)
        bench.engine.place(later)
        second = bench.engine.checkpoint(later.ref, deadline_seconds=60).checkpoint.generation
        assert second > first

        bench.engine.forget(order.ref.job, keep=second)
        third = next_order(later, bench.here, placed.image_digest, first)
        with pytest.raises(NotResumableError):
            bench.engine.place(third)

        bench.engine.place(next_order(third, bench.here, placed.image_digest, second))
        bench.engine.kill(next_order(third, bench.here, placed.image_digest, second).ref)
        bench.engine.forget(order.ref.job)
        bench.engine.forget(order.ref.job)
