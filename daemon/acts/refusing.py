"""Orders that were refused: whose fault it was, and what follows for job and node."""

from collections.abc import Set as AbstractSet

import structlog

from daemon.acts import falling
from daemon.acts.ending import end
from daemon.acts.tools import Tools
from daemon.core.history import Change
from daemon.core.lifecycle import Event, waiting_event
from daemon.core.types import Checkpoint, Job, JobId
from daemon.store import IntentId
from migration.base import (
    ChangedFilesError,
    CheckpointAwayError,
    EngineError,
    NodeUnfitError,
    NotResumableError,
    OrderRefusedError,
    StaleOrderError,
)
from migration.words import PROLOG_CAME

_log = structlog.get_logger(__name__)

#: The shim's words for a generation that is good, on a node that it does not fit.
_MISFIT = ("does not fit this node", "the images are of CRIU")
#: A generation that is whole and yet could not be resumed so often is no good.
_TRIES = 3


def refused(tools: Tools, job: Job, intent: IntentId | None, exc: EngineError) -> None:
    """
    Write down what a refused order means; no process of the segment is left.

    Raises:
        EngineError: it is not known what became of the order.
    """
    why = str(exc)
    if job.segment is not None and tools.observer.panicked(job.segment.node):
        # What came of the order was killed, and nobody is at fault.
        _not_placed(tools, job, intent, why, fault=False)
        return
    match exc:
        case OrderRefusedError() if job.started is None:
            # No node could do it, and nothing has been done yet.
            change = Change(job=job.id, event=Event.FAILED, reason=why, struck=True)
            end(tools, change, ticks_off=intent)
        case OrderRefusedError():
            _not_placed(tools, job, intent, why, fault=True)
        case ChangedFilesError():
            _changed(tools, job, intent, exc.files)
        case NotResumableError():
            _not_resumable(tools, job, intent, why)
        case CheckpointAwayError() | StaleOrderError():
            _not_placed(tools, job, intent, why, fault=False)
        case NodeUnfitError():
            _unfit(tools, job, intent, why)
        case _:
            raise exc


def _not_placed(tools: Tools, job: Job, intent: IntentId | None, why: str, *, fault: bool) -> None:
    change = Change(
        job=job.id,
        event=waiting_event(job),
        reason=f"not placed: {why}",
        struck=True,
        fault=True if fault else None,
        pause=None if fault else tools.retry,
    )
    _note(tools, change, intent, why)


def _note(tools: Tools, change: Change, intent: IntentId | None, why: str) -> None:
    before = tools.store.job(change.job)
    node = before.segment.node if before is not None and before.segment is not None else ""
    tools.store.record(change, now=tools.clock.now(), finish=intent)
    _log.warning("job.not_placed", job=change.job, node=node, reason=why)


def _changed(tools: Tools, job: Job, intent: IntentId | None, files: tuple[str, ...]) -> None:
    """Its submitter wants to look at its files before it goes on from an older state."""
    why = (
        f"its files have changed since generation {job.generation}: {listed(files)}; "
        f"look at them, then 'stopgap release {job.id}' has it go on all the same"
    )
    change = Change(
        job=job.id,
        event=waiting_event(job),
        reason=why,
        struck=True,
        hold_wanted=True,
        changed_files=files,
    )
    _note(tools, change, intent, why)


def listed(files: tuple[str, ...]) -> str:
    """Return the first few of a list of files; all of them are in what ``show`` prints."""
    return ", ".join(files[:5]) + (f" and {len(files) - 5} more" if len(files) > 5 else "")


def _not_resumable(tools: Tools, job: Job, intent: IntentId | None, why: str) -> None:
    if any(words in why for words in _MISFIT):
        # The node is not what we thought: it is looked at again before it is used.
        _not_placed(tools, job, intent, why, fault=False)
        _distrust(tools, job, why)
        return
    good = tools.engine.checkpoints(job.id)
    older = [c for c in good if job.generation is not None and c.generation < job.generation]
    damaged = all(checkpoint.generation != job.generation for checkpoint in good)
    tried = tools.observer.not_resumed(job.id, job.generation)
    if older and (damaged or tried >= _TRIES):
        _fall_back(tools, job, intent, why, older[-1])
    else:
        _not_placed(tools, job, intent, why, fault=True)
    if not damaged:
        # It may be the node's fault as well: a canary will tell, and the next try is elsewhere.
        _distrust(tools, job, why)


def _fall_back(tools: Tools, job: Job, intent: IntentId | None, why: str, good: Checkpoint) -> None:
    """Go on from an older generation: what was done after it is lost."""
    change = Change(
        job=job.id,
        event=Event.PARK,
        reason=f"goes back to generation {good.generation}: {why}",
        struck=True,
        fault=True,
        fallback=good,
        after_crash=job.spec.after_crash,
        lost=falling.lost_between(job, good),
    )
    _note(tools, change, intent, why)


def _unfit(tools: Tools, job: Job, intent: IntentId | None, why: str) -> None:
    """
    A node refused: a prolog's refusal counts for nobody, one of a single job against that job.

    A node that refuses different jobs in a row is at fault itself, and the jobs are not.
    """
    segment = job.segment
    if PROLOG_CAME in why or segment is None:
        _not_placed(tools, job, intent, why, fault=False)
        _distrust(tools, job, why)
        return
    before = tools.observer.refused(segment.node, job.id)
    at_fault = len({job.id, *before}) >= tools.policy.refusals
    _not_placed(tools, job, intent, why, fault=not at_fault)
    if not at_fault:
        _distrust(tools, job, why)
        return
    if len(before) < tools.policy.refusals:
        _forgive(tools, before - {job.id})
    text = f"refused several jobs in a row: {why}"
    if tools.observer.condemn(segment.node, text, tools.policy.node_pause_after):
        _log.warning("node.at_fault", node=segment.node, reason=why)


def _forgive(tools: Tools, jobs: AbstractSet[JobId]) -> None:
    for job_id in sorted(jobs):
        known = tools.store.job(job_id)
        if known is not None and known.faults:
            tools.store.record(Change(job=job_id, forgive=True), now=tools.clock.now())


def _distrust(tools: Tools, job: Job, why: str) -> None:
    if job.segment is not None:
        until = tools.clock.now() + tools.distrust
        tools.observer.distrust(job.segment.node, why, until=until)
