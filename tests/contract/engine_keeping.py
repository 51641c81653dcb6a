"""What every engine promises about jobs that are saved and go on, and about crashes after it."""

from dataclasses import replace

import pytest

from daemon.core.types import AfterCrash, CheckpointKind, Phase
from migration.base import ChangedFilesError, EngineError, NotSavedError
from tests.contract.engine_bench import (
    Act,
    Bench,
    census_of,
    lines,
    next_order,
    origin,
    printed_by,
    processes_of,
    view_of,
    views_of,
)


class KeepingContract:
    """Subclass once per engine, beside ``EngineContract``."""

    def test_a_saved_job_goes_on(self, bench: Bench) -> None:
        """What it is saved for is a crash, and that is not an end that it was saved at."""
        order = bench.order(Act.COUNT, bench.here)
        bench.engine.place(order)
        bench.await_(lambda: printed_by(bench, order) > 2)

        kept = bench.engine.save(order.ref, deadline_seconds=60, kind=CheckpointKind.TRIAL)
        before = printed_by(bench, order)
        bench.await_(lambda: printed_by(bench, order) > before)

        assert Phase.RUNNING is view_of(bench, order).phase
        assert [False] == [s.frozen for s in census_of(bench, order)]
        assert (kept.checkpoint,) == bench.engine.checkpoints(order.ref.job)
        assert (order.ref.epoch, CheckpointKind.TRIAL) == origin(kept.checkpoint)
        bench.engine.kill(order.ref)
        assert bench.engine.settled(order.ref) is None

    def test_a_crashed_job_goes_on_from_what_was_kept(self, bench: Bench) -> None:
        """Its log is one sequence: what it printed after the checkpoint is printed again."""
        order = bench.order(Act.COUNT, bench.here)
        placed = bench.engine.place(order)
        bench.await_(lambda: printed_by(bench, order) > 2)
        kept = bench.engine.save(order.ref, deadline_seconds=60).checkpoint
        before = printed_by(bench, order)
        bench.await_(lambda: printed_by(bench, order) > before + 2)
        bench.engine.kill(order.ref)

        later = next_order(order, bench.there, placed.image_digest, kept.generation)
        bench.engine.place(replace(later, after_crash=AfterCrash.HOLD))
        bench.await_(lambda: printed_by(bench, later) > 2)
        bench.engine.kill(later.ref)

        log = b"".join(bench.engine.logs(order.ref, until=kept.time))
        log += b"".join(bench.engine.logs(later.ref))
        assert lines(0, log.count(b"\n")) == log

    def test_nobody_can_tell_what_a_lost_container_had_printed_by_then(self, bench: Bench) -> None:
        """An empty log would pass for one; without a moment nothing is what there is."""
        order = bench.order(Act.COUNT, bench.here)
        bench.engine.place(order)
        kept = bench.engine.save(order.ref, deadline_seconds=60).checkpoint
        bench.engine.kill(order.ref)
        bench.engine.remove(order.ref)

        assert [] == list(bench.engine.logs(order.ref))
        with pytest.raises(EngineError):
            list(bench.engine.logs(order.ref, until=kept.time))

    def test_an_eviction_after_a_save_is_an_end(self, bench: Bench) -> None:
        """The next checkpoint is another one, newer, and its segment is gone."""
        order = bench.order(Act.COUNT, bench.here)
        bench.engine.place(order)
        kept = bench.engine.save(order.ref, deadline_seconds=60).checkpoint
        again = bench.engine.save(order.ref, deadline_seconds=60).checkpoint

        saved = bench.engine.checkpoint(order.ref, deadline_seconds=60).checkpoint

        assert kept.generation < again.generation < saved.generation
        assert (order.ref.epoch, CheckpointKind.EVICTION) == origin(saved)
        assert saved == bench.engine.settled(order.ref)
        assert (kept, again, saved) == bench.engine.checkpoints(order.ref.job)
        assert 0 == processes_of(bench, order)
        with pytest.raises(NotSavedError):
            bench.engine.save(order.ref, deadline_seconds=60)

    def test_a_frozen_job_is_saved_and_stays_frozen(self, bench: Bench) -> None:
        """As it was found, so it is left."""
        order = bench.order(Act.COUNT, bench.here)
        bench.engine.place(order)
        bench.engine.freeze(order.ref)

        bench.engine.save(order.ref, deadline_seconds=60)

        assert [True] == [s.frozen for s in census_of(bench, order)]
        bench.engine.thaw(order.ref)
        assert [False] == [s.frozen for s in census_of(bench, order)]

    def test_files_are_cut_back_to_the_checkpoint(self, bench: Bench) -> None:
        """What a crashed job has written since then is written again, and only once there."""
        order = bench.order(Act.WRITE, bench.here)
        placed = bench.engine.place(order)
        bench.await_(lambda: printed_by(bench, order) > 2)
        kept = bench.engine.save(order.ref, deadline_seconds=60).checkpoint
        before = bench.written(order.ref.job).count(b"\n")
        bench.await_(lambda: bench.written(order.ref.job).count(b"\n") > before + 2)
        bench.engine.kill(order.ref)

        later = next_order(order, bench.there, placed.image_digest, kept.generation)
        resumed = bench.engine.place(replace(later, after_crash=AfterCrash.HOLD))
        bench.await_(lambda: printed_by(bench, later) > 5)
        bench.engine.kill(later.ref)

        written = bench.written(order.ref.job)
        assert () == resumed.changed
        assert lines(0, written.count(b"\n")) == written

    def test_changed_files_hold_the_job(self, bench: Bench) -> None:
        """Unless the submitter has said that it is to go on all the same."""
        order = bench.order(Act.WRITE, bench.here)
        placed = bench.engine.place(order)
        bench.await_(lambda: printed_by(bench, order) > 2)
        kept = bench.engine.save(order.ref, deadline_seconds=60).checkpoint
        bench.engine.kill(order.ref)
        name = bench.meddle(order.ref.job)
        before = bench.written(order.ref.job)

        held = next_order(order, bench.there, placed.image_digest, kept.generation)
        with pytest.raises(ChangedFilesError) as caught:
            bench.engine.place(replace(held, after_crash=AfterCrash.HOLD))

        assert [name] == [line.split(" ")[0] for line in caught.value.files]
        assert [] == views_of(bench, held)
        assert before == bench.written(order.ref.job)

        later = next_order(held, bench.there, placed.image_digest, kept.generation)
        resumed = bench.engine.place(replace(later, after_crash=AfterCrash.RESUME))
        assert caught.value.files == resumed.changed
        bench.await_(lambda: printed_by(bench, later) > 0)
