"""Falling back: a job that lost a segment goes on from its last good generation."""

from dataclasses import replace
from datetime import datetime, timedelta

import structlog

from daemon.acts.tools import Tools
from daemon.core.history import Change
from daemon.core.lifecycle import Event
from daemon.core.saving import stored
from daemon.core.types import (
    Checkpoint,
    CheckpointMode,
    Generation,
    Job,
    SegmentRef,
)
from migration.base import EngineError

_log = structlog.get_logger(__name__)


def back(tools: Tools, job: Job, change: Change, *, untouched: bool = False) -> Change:
    """
    Complete the change that ends a segment from outside: what it falls back to, what is lost.

    ``untouched`` when no instruction of the segment ran.
    """
    found = None
    if job.spec.checkpoint is CheckpointMode.CRIU:
        found = _unrecorded(tools, job)
    saved = found.time if found is not None else job.saved
    if found is not None or job.generation is not None:
        change = replace(
            change,
            checkpoint=found,
            event=Event.PARK,
            # Its files may be further than the generation is.
            after_crash=None if untouched else job.spec.after_crash,
        )
    return replace(change, lost=lost(tools, job, saved=saved)) if change.outcome else change


def lost(tools: Tools, job: Job, *, saved: datetime | None = None) -> timedelta:
    """Return the progress of the newest segment that is gone with it."""
    if job.segment is None:
        return timedelta()
    since = max(job.segment.started, saved or job.segment.started)
    return max(tools.clock.now() - since, timedelta())


def lost_between(job: Job, good: Checkpoint) -> timedelta:
    """Return what is lost when the job goes on from an older generation than its own."""
    return timedelta() if job.saved is None else max(job.saved - good.time, timedelta())


def _unrecorded(tools: Tools, job: Job) -> Checkpoint | None:
    """
    Find a generation of the newest segment that was committed while nobody listened.

    It counts only with what the segment had printed until then: a log has no gaps.
    """
    if job.segment is None:
        return None
    known = job.generation or 0
    try:
        found = tools.engine.checkpoints(job.id)
    except EngineError as exc:
        _log.warning("checkpoints.not_read", job=job.id, reason=str(exc))
        return None
    newer = [c for c in found if c.generation > known and c.epoch == job.segment.epoch]
    for checkpoint in reversed(newer):
        if keep_log_until(tools, job.segment.ref, checkpoint):
            return checkpoint
    return None


def keep_log_until(tools: Tools, ref: SegmentRef, checkpoint: Checkpoint) -> bool:
    """Copy what the segment had printed at a checkpoint; tell whether it is there."""
    if tools.spool.has_log(ref.job, ref.epoch, until=checkpoint.generation):
        return True
    try:
        chunks = tools.engine.logs(ref, until=checkpoint.time)
        tools.spool.put_log(ref.job, ref.epoch, chunks, until=checkpoint.generation)
    except (EngineError, OSError) as exc:
        _log.warning("log.not_kept", job=ref.job, node=ref.node, reason=str(exc))
        return False
    return True


def tidy(tools: Tools, job: Job, *, keep: Generation) -> None:
    """Delete generations older than one, and note what is left."""
    try:
        tools.engine.forget(job.id, keep=keep)
        left = tools.engine.checkpoints(job.id)
    except EngineError as exc:
        _log.warning("checkpoints.not_removed", job=job.id, reason=str(exc))
        return
    tools.store.record(
        Change(job=job.id, stored_bytes=stored(left)),
        now=tools.clock.now(),
    )
