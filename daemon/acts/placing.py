"""Starting and resuming: a job gets its next segment."""

import structlog

from daemon.acts import falling, refusing
from daemon.acts.tools import Tools
from daemon.core.actions import Place
from daemon.core.history import Change
from daemon.core.lifecycle import Event
from daemon.core.types import Job, Segment, SegmentRef
from daemon.store import IntentId
from migration.base import (
    EngineError,
    EngineUnreachableError,
    NodeUnfitError,
    Placed,
    StartOrder,
)

_log = structlog.get_logger(__name__)


def place(tools: Tools, action: Place) -> None:
    """
    Write down the new segment, then start or resume it.

    The epoch is in the store before the order leaves, so that whatever the order leaves
    behind can be told apart from every later segment.
    """
    if not tools.observer.is_free(action.node):
        _log.info("place.dropped", job=action.job, node=action.node, reason="it is free no more")
        return
    now = tools.clock.now()
    ref = SegmentRef(job=action.job, epoch=action.epoch, node=action.node)
    try:
        # As long as nothing was ordered a silent engine is only a node to avoid.
        tools.engine.ready(action.node)
    except EngineUnreachableError as exc:
        tools.observer.distrust(action.node, str(exc), until=now + tools.distrust)
        return
    segment = Segment(
        job=action.job,
        epoch=action.epoch,
        node=action.node,
        started=now,
        resumed_from=action.generation,
    )
    event = Event.START if action.generation is None else Event.RESUME
    job, intent = tools.store.record(
        Change(job=action.job, event=event, reason=action.reason, opened=segment),
        now=now,
        begin=event.value,
    )
    order = StartOrder(
        ref=ref,
        spec=job.spec,
        env=tools.spool.env(job.id),
        image_digest=job.image_digest,
        seen=action.seen,
        generation=action.generation,
        after_crash=job.after_crash if action.generation is not None else None,
        ignored=_logs_since(tools, job),
    )
    try:
        if tools.observer.panicked(action.node):
            # Whoever calls it looks for segments afterwards: one of the two sees the other.
            raise NodeUnfitError("an administrator called panic")
        placed = tools.engine.place(order)
    except EngineUnreachableError as exc:
        # It may or may not have begun: its node will tell, until then the state stays.
        _record(tools, Change(job=job.id, reason=str(exc)), intent)
    except EngineError as exc:
        refusing.refused(tools, job, intent, exc)
    else:
        tools.observer.accepted(action.node)
        tools.observer.resumed(job.id)
        _placed(tools, job, intent, placed)


def _logs_since(tools: Tools, job: Job) -> tuple[str, ...]:
    """Return where logs of the submitter's other jobs were copied to since the checkpoint."""
    if job.after_crash is None:
        return ()
    since = job.saved or job.submitted
    return tuple(sorted(tools.store.outputs(uid=job.spec.owner.uid, since=since)))


def _placed(tools: Tools, job: Job, intent: IntentId | None, placed: Placed) -> None:
    segment = job.segment
    node = segment.node if segment is not None else ""
    changed = f"; changed since its checkpoint: {refusing.listed(placed.changed)}"
    change = Change(
        job=job.id,
        event=Event.PLACED,
        reason=f"runs on {node}{changed if placed.changed else ''}",
        image_digest=placed.image_digest,
        fault=False,
    )
    _record(tools, change, intent)
    _log.info("job.placed", job=job.id, node=node, seconds=round(placed.seconds, 3))
    if segment is not None and segment.resumed_from is not None:
        # It is proven now: what is older will never be needed again.
        falling.tidy(tools, job, keep=segment.resumed_from)


def _record(tools: Tools, change: Change, intent: IntentId | None) -> None:
    tools.store.record(change, now=tools.clock.now(), finish=intent)
