"""Starting and resuming: a job gets its next segment."""

import structlog

from daemon.acts.ending import end
from daemon.acts.tools import Tools
from daemon.core.actions import Place
from daemon.core.history import Change
from daemon.core.lifecycle import Event, waiting_event
from daemon.core.types import Job, Segment, SegmentRef
from daemon.store import IntentId
from migration.base import (
    EngineUnreachableError,
    NodeUnfitError,
    NotResumableError,
    OrderRefusedError,
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
    )
    try:
        placed = tools.engine.place(order)
    except OrderRefusedError as exc:
        _refused(tools, job, intent, str(exc))
    except (NodeUnfitError, NotResumableError) as exc:
        _not_placed(tools, job, intent, str(exc), node_at_fault=isinstance(exc, NodeUnfitError))
    except EngineUnreachableError as exc:
        # It may or may not have begun: its node will tell, until then the state stays.
        _record(tools, Change(job=job.id, reason=str(exc)), intent)
    else:
        change = Change(
            job=job.id,
            event=Event.PLACED,
            reason=f"runs on {action.node}",
            image_digest=placed.image_digest,
            fault=False,
        )
        _record(tools, change, intent)
        _log.info("job.placed", job=job.id, node=action.node, seconds=round(placed.seconds, 3))
        if action.generation is not None:
            # It is proven now: what is older will never be needed again.
            tools.engine.forget(job.id, keep=action.generation)


def _record(tools: Tools, change: Change, intent: IntentId | None) -> None:
    tools.store.record(change, now=tools.clock.now(), finish=intent)


def _refused(tools: Tools, job: Job, intent: IntentId | None, why: str) -> None:
    """No node could do it: the end of a job that has done nothing yet, a fault for any other."""
    if job.started is not None:
        _not_placed(tools, job, intent, why, node_at_fault=False)
        return
    change = Change(job=job.id, event=Event.FAILED, reason=why, struck=True)
    end(tools, change, ticks_off=intent)


def _not_placed(
    tools: Tools, job: Job, intent: IntentId | None, why: str, *, node_at_fault: bool
) -> None:
    segment = job.segment
    change = Change(
        job=job.id, event=waiting_event(job), reason=f"not placed: {why}", struck=True, fault=True
    )
    _record(tools, change, intent)
    _log.warning("job.not_placed", job=job.id, node=segment and segment.node, reason=why)
    if node_at_fault and segment is not None:
        tools.observer.distrust(segment.node, why, until=tools.clock.now() + tools.distrust)
