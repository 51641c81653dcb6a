"""How often a job is saved, and what makes up the log of one that was not always."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from daemon.core.policy import Policy
from daemon.core.saving import due, interval, stored
from daemon.core.types import (
    Checkpoint,
    CheckpointKind,
    CheckpointMode,
    Epoch,
    Generation,
    Job,
    JobId,
    JobSpec,
    JobState,
    Losses,
    Movable,
    NodeName,
    Outcome,
    Owner,
    Segment,
)
from daemon.core.verdict import Piece, log_chain

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = Policy()
NONE = Losses()
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


def _job(**changes: object) -> Job:
    job = Job(
        id=JobId(1),
        spec=JobSpec(name="j", owner=Owner(uid=0, gid=0), image="i", command=("c",)),
        state=JobState.RUNNING,
        submitted=NOW,
        segment=_segment(1),
        movable=Movable.YES,
        save_cost=2 * SECOND,
    )
    return replace(job, **changes)  # type: ignore[arg-type]  # fields of Job, as a test likes


def _segment(epoch: int, resumed_from: int | None = None) -> Segment:
    return Segment(
        job=JobId(1),
        epoch=Epoch(epoch),
        node=NodeName("n1"),
        started=NOW,
        outcome=Outcome.CRASHED,
        resumed_from=None if resumed_from is None else Generation(resumed_from),
    )


def _checkpoint(generation: int, epoch: int, kind: CheckpointKind) -> Checkpoint:
    return Checkpoint(
        job=JobId(1),
        generation=Generation(generation),
        epoch=Epoch(epoch),
        time=NOW,
        size_bytes=1,
        seconds=1,
        kind=kind,
    )


def test_what_two_generations_have_in_common_counts_once() -> None:
    """
    As long as both are there; alone, each takes all of its size.
    """
    full, second, third = (
        replace(
            _checkpoint(number, 1, CheckpointKind.PERIODIC),
            size_bytes=100 + number,
            shared_bytes=90 if number > 1 else 0,
            parent=Generation(number - 1) if number > 1 else None,
        )
        for number in (1, 2, 3)
    )

    assert 101 + 12 + 13 == stored([full, second, third])
    assert 102 + 13 == stored([second, third])
    assert 101 + 103 == stored([full, third])
    assert 0 == stored([])


def test_a_dearer_checkpoint_is_made_less_often() -> None:
    """
    By the square root: four times the cost is twice the interval.
    """
    cheap, dear = (interval(_job(save_cost=n * SECOND), NONE, POLICY) for n in (1, 4))

    assert abs(2 * cheap - dear) < SECOND
    assert abs(timedelta(seconds=(2 * 720 * 3600) ** 0.5) - cheap) < SECOND


def test_losses_that_were_seen_shorten_the_interval() -> None:
    """
    The site's word counts at first, what was observed in the end.
    """
    calm = interval(_job(), Losses(ran=100_000 * HOUR, count=1), POLICY)
    usual = interval(_job(), NONE, POLICY)
    bad = interval(_job(), Losses(ran=1000 * HOUR, count=100), POLICY)

    assert bad < usual < calm


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"save_cost": timedelta()}, POLICY.checkpoint_min),
        ({"save_cost": None}, POLICY.checkpoint_min),
        ({"save_cost": timedelta(days=1)}, POLICY.checkpoint_max),
    ],
)
def test_the_interval_has_bounds(changes: dict[str, object], expected: timedelta) -> None:
    """
    Neither the file system nor the job is given up to arithmetic.
    """
    assert expected == interval(_job(**changes), NONE, POLICY)


def test_the_interval_counts_from_what_was_last_done() -> None:
    """
    A start, a checkpoint, or a try that failed.
    """
    job = _job()
    wait = interval(job, NONE, POLICY)

    assert NOW + wait == due(job, NONE, POLICY)
    assert NOW + HOUR + wait == due(replace(job, saved=NOW + HOUR), NONE, POLICY)
    assert NOW + 2 * HOUR + wait == due(replace(job, save_tried=NOW + 2 * HOUR), NONE, POLICY)
    assert NOW + wait == due(replace(job, saved=NOW - HOUR), NONE, POLICY)


def test_only_jobs_for_criu_are_ever_due() -> None:
    """
    Others were declared otherwise.
    """
    for mode in (CheckpointMode.SIGNAL, CheckpointMode.NONE):
        job = _job()
        assert due(replace(job, spec=replace(job.spec, checkpoint=mode)), NONE, POLICY) is None


@pytest.mark.parametrize(
    ("segments", "checkpoints", "pieces"),
    [
        ([_segment(1)], [], [(1, None)]),
        (
            [_segment(1), _segment(2, 1)],
            [_checkpoint(1, 1, CheckpointKind.EVICTION)],
            [(1, None), (2, None)],
        ),
        (
            [_segment(1), _segment(2, 1)],
            [_checkpoint(1, 1, CheckpointKind.TRIAL)],
            [(1, 1), (2, None)],
        ),
        # The second was lost before anything of it was saved.
        (
            [_segment(1), _segment(2, 1), _segment(3, 1)],
            [_checkpoint(1, 1, CheckpointKind.PERIODIC)],
            [(1, 1), (3, None)],
        ),
        # Kept, evicted, and then resumed from the older one.
        (
            [_segment(1), _segment(2, 1)],
            [
                _checkpoint(1, 1, CheckpointKind.PERIODIC),
                _checkpoint(2, 1, CheckpointKind.EVICTION),
            ],
            [(1, 1), (2, None)],
        ),
        (
            [_segment(1), _segment(2, 1), _segment(3, 3), _segment(4)],
            [
                _checkpoint(1, 1, CheckpointKind.EVICTION),
                _checkpoint(3, 2, CheckpointKind.PERIODIC),
            ],
            [(4, None)],
        ),
        (
            [_segment(1), _segment(2, 1), _segment(3, 3)],
            [
                _checkpoint(1, 1, CheckpointKind.EVICTION),
                _checkpoint(3, 2, CheckpointKind.PERIODIC),
            ],
            [(1, None), (2, 3), (3, None)],
        ),
    ],
)
def test_a_log_ends_where_the_next_segment_begins(
    segments: list[Segment],
    checkpoints: list[Checkpoint],
    pieces: list[tuple[int, int | None]],
) -> None:
    """
    What was printed after a checkpoint that a job was resumed from is printed again.
    """
    expected = tuple(
        Piece(epoch=Epoch(epoch), until=None if until is None else Generation(until))
        for epoch, until in pieces
    )

    assert expected == log_chain(CheckpointMode.CRIU, segments, checkpoints)


def test_a_job_that_saves_itself_keeps_all_it_printed() -> None:
    """
    Where it goes on is its own business.
    """
    found = log_chain(CheckpointMode.SIGNAL, [_segment(2), _segment(1)], [])

    assert (Piece(epoch=Epoch(1)), Piece(epoch=Epoch(2))) == found
