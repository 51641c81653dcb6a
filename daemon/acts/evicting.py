"""Getting out of the way: freeze all jobs of a node at once, save them side by side."""

from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta

import structlog

from daemon.acts import falling
from daemon.acts.ending import keep_log, remove
from daemon.acts.tools import Tools, runs
from daemon.core.actions import Thaw, Vacate
from daemon.core.history import Change
from daemon.core.lifecycle import Event, waiting_event
from daemon.core.types import (
    PLACED,
    CheckpointMode,
    Job,
    JobState,
    Outcome,
    SegmentRef,
)
from daemon.store import EvictionRecord, IntentId
from migration.base import EngineError, EngineUnreachableError, NotSavedError, Saved

_log = structlog.get_logger(__name__)

_SIGTERM = 15
#: How it ended decides what follows, and not that its node was wanted just then.
_ENDED = "it has ended by itself"


def vacate(tools: Tools, action: Vacate) -> None:
    """
    Evict the segments that are still there; return when each is saved, killed or kept.

    They are frozen before anything is written down: the priority job has its cores from
    then on.  A crash in between leaves frozen jobs that count as running, and the plan takes
    an unexplained freeze for a claim.
    """
    held = {ref.job for ref in action.refs}
    evictions: list[Future[None]] = []
    try:
        with ThreadPoolExecutor(len(action.refs), thread_name_prefix="evict") as pool:
            frozen = list(pool.map(lambda ref: _freeze(tools, ref, action), action.refs))
            for ref, freeze_seconds in zip(action.refs, frozen, strict=True):
                # From here on each eviction lets go of its own job.
                held.discard(ref.job)
                evictions.append(pool.submit(_evict, tools, ref, action, freeze_seconds))
    finally:
        tools.observer.end(held, None, ())
    for eviction in evictions:
        eviction.result()


def _begin(tools: Tools, ref: SegmentRef, action: Vacate) -> IntentId | None:
    """Write the intent down, unless the world changed since the plan was made."""
    job = tools.store.job(ref.job)
    if job is None or job.segment is None or job.segment.ref != ref:
        return None
    if job.state not in {JobState.RUNNING, JobState.EVICTING}:
        return None
    event = Event.EVICT if job.state is JobState.RUNNING else None
    _, intent = tools.store.record(
        Change(job=ref.job, event=event, reason=f"{ref.node} is wanted: {action.reason}"),
        now=tools.clock.now(),
        begin="evict",
    )
    return intent


def _freeze(tools: Tools, ref: SegmentRef, action: Vacate) -> float:
    """
    Stop the job where it is; return the seconds since the claim was seen.

    A failure is not reported: the checkpoint freezes again and knows better what is wrong.
    """
    job = tools.store.job(ref.job)
    if job is not None and job.spec.checkpoint is CheckpointMode.CRIU:
        try:
            tools.engine.freeze(ref)
        except EngineError as exc:
            _log.warning("job.not_frozen", job=ref.job, node=ref.node, reason=str(exc))
    return (tools.clock.now() - action.seen).total_seconds()


def _evict(tools: Tools, ref: SegmentRef, action: Vacate, freeze_seconds: float) -> None:
    intent: IntentId | None = None
    try:
        intent = _begin(tools, ref, action)
        job = tools.store.job(ref.job)
        if intent is None or job is None:
            return
        if tools.clock.now() >= action.deadline:
            _give_up(tools, job, intent, "its node's time was up")
        elif job.spec.checkpoint is CheckpointMode.CRIU:
            _checkpoint(tools, job, intent, action, freeze_seconds)
        else:
            _end_without(tools, job, intent, action)
    except EngineUnreachableError as exc:
        tools.store.record(
            Change(job=ref.job, event=Event.SILENT, reason=str(exc)),
            now=tools.clock.now(),
            finish=intent,
        )
    except EngineError as exc:
        _kept(tools, ref, intent, str(exc))
    finally:
        tools.observer.end([ref.job], None, [ref.node])
    # The job may go on elsewhere while its old container is removed.
    if not _may_live(tools, ref):
        remove(tools, ref)


def _may_live(tools: Tools, ref: SegmentRef) -> bool:
    job = tools.store.job(ref.job)
    return (
        job is not None
        and job.state in PLACED
        and job.segment is not None
        and job.segment.ref == ref
    )


def _checkpoint(
    tools: Tools, job: Job, intent: IntentId, action: Vacate, freeze_seconds: float
) -> None:
    ref = _ref(job)
    left = (action.deadline - tools.clock.now()).total_seconds()
    limit = min(left, tools.checkpoint_limit.total_seconds())
    try:
        saved = tools.engine.checkpoint(ref, deadline_seconds=max(limit, 1.0))
    except NotSavedError as exc:
        if tools.clock.now() >= action.deadline:
            _give_up(tools, job, intent, f"no checkpoint in time: {exc}")
        else:
            _kept(tools, ref, intent, str(exc))
        return
    record_saved(tools, ref, intent, saved, freeze_seconds)
    keep_log(tools, job, ref)


def record_saved(
    tools: Tools, ref: SegmentRef, intent: IntentId, saved: Saved, freeze_seconds: float
) -> None:
    """Write down that the job waits with a new generation, and how fast it went."""
    now = tools.clock.now()
    tools.store.record(
        Change(
            job=ref.job,
            event=Event.SAVED,
            outcome=Outcome.EVICTED,
            checkpoint=saved.checkpoint,
            reason=f"checkpointed as generation {saved.checkpoint.generation}",
            fault=False,
        ),
        now=now,
        finish=intent,
        eviction=EvictionRecord(
            ref=ref,
            time=now,
            freeze_seconds=freeze_seconds,
            vacate_seconds=saved.vacate_seconds,
        ),
    )
    _log.info(
        "job.evicted",
        job=ref.job,
        node=ref.node,
        generation=saved.checkpoint.generation,
        bytes=saved.checkpoint.size_bytes,
        written_bytes=saved.checkpoint.written_bytes,
        plain_bytes=saved.checkpoint.plain_bytes,
        freeze_seconds=round(freeze_seconds, 3),
        vacate_seconds=round(saved.vacate_seconds, 3),
    )


def _kept(tools: Tools, ref: SegmentRef, intent: IntentId | None, why: str) -> None:
    """The job lives, as it was found; the plan tries again, lets it go on, or gives it up."""
    _log.warning("job.not_saved", job=ref.job, node=ref.node, reason=why)
    tools.store.record(
        Change(job=ref.job, reason=f"not saved yet: {why}", pause=tools.retry),
        now=tools.clock.now(),
        finish=intent,
    )


def _give_up(tools: Tools, job: Job, intent: IntentId, why: str) -> None:
    """The node must be free now: the job falls back to its last generation."""
    ref = _ref(job)
    if not runs(tools, ref):
        _kept(tools, ref, intent, _ENDED)
        return
    tools.engine.kill(ref)
    saved = tools.engine.settled(ref)
    change = Change(
        job=job.id,
        event=waiting_event(job) if saved is None else Event.SAVED,
        outcome=Outcome.CRASHED if saved is None else Outcome.EVICTED,
        checkpoint=saved,
        reason=f"killed: {why}" if saved is None else "checkpointed at the last moment",
    )
    if saved is None:
        change = falling.back(tools, job, change)
    tools.store.record(change, now=tools.clock.now(), finish=intent)
    _log.warning("job.killed", job=job.id, node=ref.node, reason=why)
    keep_log(tools, job, ref)


def _end_without(tools: Tools, job: Job, intent: IntentId, action: Vacate) -> None:
    """End a job that is not for CRIU: with time to save itself, or at once."""
    ref = _ref(job)
    if not runs(tools, ref):
        _kept(tools, ref, intent, _ENDED)
        return
    if job.spec.checkpoint is CheckpointMode.SIGNAL:
        tools.engine.signal(ref, _SIGTERM)
        # A prolog has frozen it, and a frozen job cannot save itself.
        tools.engine.thaw(ref)
        until = min(tools.clock.now() + tools.signal_grace, action.deadline)
        while tools.clock.now() < until and runs(tools, ref):
            tools.clock.wait(0.2)
    tools.engine.kill(ref)
    redo = job.spec.checkpoint is CheckpointMode.NONE
    tools.store.record(
        Change(
            job=job.id,
            event=Event.REQUEUE,
            outcome=Outcome.EVICTED,
            lost=falling.lost(tools, job) if redo else timedelta(),
            reason="ended for a priority job; it is declared to start again",
        ),
        now=tools.clock.now(),
        finish=intent,
    )
    keep_log(tools, job, ref)


def _ref(job: Job) -> SegmentRef:
    if job.segment is None:
        raise ValueError(f"job {job.id} has no segment to evict")
    return job.segment.ref


def thaw(tools: Tools, action: Thaw) -> None:
    """Let a job go on whose node is not wanted any more."""
    tools.engine.thaw(action.ref)
    tools.store.record(
        Change(job=action.ref.job, event=Event.THAWED, reason=action.reason),
        now=tools.clock.now(),
    )
