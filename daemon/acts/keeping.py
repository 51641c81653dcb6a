"""Saving a job that goes on: what is found out about it, and what a crash will fall back to."""

from dataclasses import replace
from datetime import timedelta

import structlog

from daemon.acts import falling
from daemon.acts.tools import Tools, runs
from daemon.core.actions import Save
from daemon.core.history import Change
from daemon.core.lifecycle import Event
from daemon.core.types import Checkpoint, CheckpointKind, Job, JobState, Movable, SegmentRef
from daemon.store import IntentId
from migration.base import EngineError, EngineUnreachableError, Kept, NotSavedError

_log = structlog.get_logger(__name__)

#: Words of reasons that say nothing about the job.
_THE_DISKS = ("No space left", "is full", "scratch directory", "quota", "Input/output error")
#: So do these, unless CRIU has said what held it up.
_OUT_OF_TIME = ("cancelled", "deadline")
_CRIU_SAYS = "Error (criu"


def save(tools: Tools, action: Save) -> None:
    """
    Checkpoint a job that runs undisturbed; it goes on whatever comes of it.

    The generation counts once what was printed until then is kept too: if its node is lost
    next, nobody can ask for that any more.
    """
    ref = action.ref
    job = tools.store.job(ref.job)
    if job is None or job.state is not JobState.RUNNING:
        return
    if job.segment is None or job.segment.ref != ref:
        return
    if not tools.observer.is_free(ref.node):
        _log.info("save.dropped", job=ref.job, node=ref.node, reason="its node is wanted")
        # Others that are due have their turn meanwhile.
        tools.store.record(Change(job=job.id, pause=tools.retry), now=tools.clock.now())
        return
    _, intent = tools.store.record(Change(job=job.id), now=tools.clock.now(), begin="save")
    began = tools.clock.monotonic()
    left = (action.deadline - tools.clock.now()).total_seconds()
    limit = min(left, tools.checkpoint_limit.total_seconds())
    try:
        kept = tools.engine.save(ref, deadline_seconds=max(limit, 1.0), kind=action.kind)
    except (NotSavedError, EngineUnreachableError) as exc:
        cost = timedelta(seconds=tools.clock.monotonic() - began)
        _not_kept(tools, job, intent, cost, exc)
        return
    cost = timedelta(seconds=kept.freeze_seconds)
    if falling.keep_log_until(tools, ref, kept.checkpoint):
        _kept(tools, job, intent, kept, action.kind)
    else:
        _note(tools, Change(job=job.id, stood_still=cost), intent)


def _kept(
    tools: Tools, job: Job, intent: IntentId | None, kept: Kept, kind: CheckpointKind
) -> None:
    checkpoint, ref = kept.checkpoint, _ref(job)
    change = Change(
        job=job.id,
        event=Event.KEPT,
        about=ref,
        checkpoint=checkpoint,
        stood_still=timedelta(seconds=kept.freeze_seconds),
        reason=f"runs on {ref.node}; its {kind.value} checkpoint is "
        f"generation {checkpoint.generation}",
    )
    _note(tools, change, intent)
    _log.info(
        "job.kept",
        job=job.id,
        node=ref.node,
        generation=checkpoint.generation,
        bytes=checkpoint.size_bytes,
        written_bytes=checkpoint.written_bytes,
        plain_bytes=checkpoint.plain_bytes,
        freeze_seconds=round(kept.freeze_seconds, 3),
    )
    _tidy(tools, job, checkpoint)


def _tidy(tools: Tools, job: Job, newest: Checkpoint) -> None:
    """
    Keep the newest generation, and the last one before it that is good.

    One is good only with its record, for that tells of its log; and what the job's present
    segment was not resumed from, nor has made itself, was refused.
    """
    recorded = {checkpoint.generation for checkpoint in tools.store.checkpoints(job.id)}
    proven = job.segment.resumed_from if job.segment is not None else None
    try:
        good = tools.engine.checkpoints(job.id)
    except EngineError as exc:
        _log.warning("checkpoints.not_read", job=job.id, reason=str(exc))
        return
    older = [
        checkpoint
        for checkpoint in good
        if checkpoint.generation < newest.generation
        and checkpoint.generation in recorded
        and (checkpoint.epoch == newest.epoch or checkpoint.generation == proven)
    ]
    if older:
        falling.tidy(tools, job, keep=older[-1].generation)
        tools.spool.trim(job.id, newest.epoch, keep=older[-1].generation)


def _not_kept(
    tools: Tools, job: Job, intent: IntentId | None, cost: timedelta, exc: EngineError
) -> None:
    """The job goes on; whether it can be moved is known now, or still is not."""
    why, ref = str(exc), _ref(job)
    change = Change(job=job.id, stood_still=cost)
    if isinstance(exc, NotSavedError) and runs(tools, ref):
        _log.warning("job.not_kept", job=job.id, node=ref.node, reason=why)
        if not _is_the_jobs(why):
            reason = f"runs on {ref.node}; not saved: {why}"
            change = replace(change, event=Event.NOT_KEPT, about=ref, reason=reason)
        else:
            # Said once: it is tried again and again.
            told = (job.movable, job.movable_why) == (Movable.NO, why)
            change = replace(
                change,
                event=None if told else Event.NOT_KEPT,
                about=ref,
                movable=Movable.NO,
                movable_why=why,
                reason=f"runs on {ref.node}; cannot be moved: {why}",
            )
    _note(tools, change, intent)


def _is_the_jobs(why: str) -> bool:
    if any(words in why for words in _THE_DISKS):
        return False
    return _CRIU_SAYS in why or not any(words in why for words in _OUT_OF_TIME)


def _note(tools: Tools, change: Change, intent: IntentId | None) -> None:
    tools.store.record(change, now=tools.clock.now(), finish=intent)


def _ref(job: Job) -> SegmentRef:
    if job.segment is None:
        raise ValueError(f"job {job.id} has no segment to save")
    return job.segment.ref
