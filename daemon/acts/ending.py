"""How segments end: the log is kept, the records are closed, nothing is left on the node."""

from datetime import timedelta

import structlog

from daemon.acts import falling
from daemon.acts.output import OutputError
from daemon.acts.tools import Tools
from daemon.core.actions import Settle, Stop, Sweep
from daemon.core.fit import kind
from daemon.core.history import Change
from daemon.core.lifecycle import Event, waiting_event
from daemon.core.types import (
    TERMINAL,
    Checkpoint,
    CheckpointMode,
    Job,
    JobId,
    JobState,
    NodeName,
    Outcome,
    Phase,
    SegmentRef,
)
from daemon.core.verdict import Piece, Verdict, judge, log_chain
from daemon.store import IntentId
from migration.base import EngineError, EngineUnreachableError

_log = structlog.get_logger(__name__)

#: The intent of everything that is to be done once a job has ended.
FINISH = "finish"
_NOT_YET_RUNNING = {JobState.STARTING, JobState.RESUMING}
_STOPPED = {Outcome.CANCELLED: Event.CANCELLED, Outcome.TIMED_OUT: Event.TIMED_OUT}


def settle(tools: Tools, action: Settle) -> None:
    """
    Find out how a segment ended and record what follows.

    The receipts come before the container's exit code: a checkpoint that was committed
    while nobody listened is a checkpoint.  Where the job will run again, first every
    process of the segment is proven gone.
    """
    ref = action.ref
    job = tools.store.job(ref.job)
    if job is None or job.segment is None or job.segment.ref != ref:
        return
    saved = _settled(tools, job, action)
    verdict = _judge(tools, job, action, saved)
    ends = verdict.outcome in {Outcome.COMPLETED, Outcome.FAILED}
    if not ends:
        _prove_gone(tools, action)
    if not keep_log(tools, job, ref) and action.gone:
        # The rest is lost with its node, and nobody is to wait for it.
        until = tools.spool.kept_until(job.id, ref.epoch)
        kept = () if until is None else tools.spool.log(job.id, ref.epoch, until=until)
        tools.spool.put_log(job.id, ref.epoch, kept)
    struck = verdict.fault and not action.gone and job.state in _NOT_YET_RUNNING
    # Nor is it the node's when panic killed what was there.
    at_fault = verdict.fault and not action.gone and not tools.observer.panicked(ref.node)
    change = Change(
        job=ref.job,
        event=verdict.event,
        outcome=None if struck else verdict.outcome,
        struck=struck,
        checkpoint=saved,
        exit_code=verdict.exit_code,
        reason=verdict.reason,
        fault=True if at_fault else None,
        avoid=_kind_of(tools, ref) if verdict.astray else "",
    )
    if verdict.outcome is Outcome.CRASHED:
        never = action.view is not None and action.view.phase is Phase.CREATED
        change = falling.back(tools, job, change, untouched=never)
    job, intent = tools.store.record(change, now=tools.clock.now(), begin=FINISH if ends else None)
    _log.info("job.settled", job=ref.job, node=ref.node, outcome=verdict.outcome, reason=job.reason)
    if intent is not None:
        finish(tools, job, intent)
    remove(tools, ref)


def _settled(tools: Tools, job: Job, action: Settle) -> Checkpoint | None:
    """
    Return the checkpoint that the segment ended with.

    One that lies on a dead node and was never heard of is as lost as the node, by the word of
    whoever called it dead.

    Raises:
        EngineUnreachableError: there may be one.
    """
    if job.spec.checkpoint is not CheckpointMode.CRIU:
        return None
    try:
        return tools.engine.settled(action.ref)
    except EngineUnreachableError:
        if not (action.gone and tools.engine.own_disks):
            raise
        return None


def _judge(tools: Tools, job: Job, action: Settle, saved: Checkpoint | None) -> Verdict:
    if action.gone and saved is None:
        return Verdict(
            outcome=Outcome.CRASHED, event=waiting_event(job), reason=action.reason, fault=True
        )
    return judge(
        job, action.view, saved, moved_for=_moved_for(tools, job), sigill=tools.policy.sigill
    )


def _moved_for(tools: Tools, job: Job) -> timedelta | None:
    """Return the time since the job came to another kind of processor; None if it did not."""
    segment = job.segment
    if segment is None or segment.resumed_from is None:
        return None
    there = job.machine
    if there is not None and kind(there) == _kind_of(tools, segment.ref):
        return None
    return tools.clock.now() - segment.started


def _prove_gone(tools: Tools, action: Settle) -> None:
    """
    End every process of the segment.

    Raises:
        EngineError: it is not proven, and nobody has vouched for it.
    """
    if action.view is not None and action.view.phase is Phase.CREATED:
        # Its start may still be under way in an engine that was too slow to answer.
        tools.engine.remove(action.ref)
        return
    try:
        tools.engine.kill(action.ref)
    except EngineUnreachableError:
        if not action.gone:
            raise


def _kind_of(tools: Tools, ref: SegmentRef) -> str:
    machine = tools.observer.record_of(ref.node).machine
    return "" if machine is None else kind(machine)


def stop(tools: Tools, action: Stop) -> None:
    """End a job that runs."""
    job = tools.store.job(action.ref.job)
    if job is None or job.segment is None or job.segment.ref != action.ref:
        return
    tools.engine.kill(action.ref)
    keep_log(tools, job, action.ref)
    end(
        tools,
        Change(
            job=job.id,
            event=_STOPPED[action.outcome],
            outcome=action.outcome,
            reason=action.reason,
        ),
    )
    remove(tools, action.ref)


def drop(tools: Tools, job_id: JobId, reason: str) -> None:
    """End a job that runs nowhere."""
    end(tools, Change(job=job_id, event=Event.CANCELLED, reason=reason))


def end(tools: Tools, change: Change, *, ticks_off: IntentId | None = None) -> None:
    """Record the end of a job, and do what follows from it."""
    job, intent = tools.store.record(change, now=tools.clock.now(), begin=FINISH, finish=ticks_off)
    if intent is not None:
        finish(tools, job, intent)


def sweep(tools: Tools, action: Sweep) -> None:
    """Remove a container that belongs to no segment that may live."""
    view = action.view
    ref = SegmentRef(job=view.job, epoch=view.epoch, node=action.node)
    with tools.observer.removing(ref):
        gone = False
        try:
            tools.engine.kill(ref)
            job = tools.store.job(view.job)
            if job is None or keep_log(tools, job, ref):
                tools.engine.remove(ref)
                gone = True
        finally:
            if not gone:
                # It counts as leaving for a while longer, or the next tick would try again.
                tools.clock.wait(tools.retry.total_seconds())


def clean(tools: Tools, node: NodeName) -> None:
    """
    End everything of ours on a node whose jobs have long gone on elsewhere, and open it again.

    Docker may have lost its records of what still runs: the node's kernel is asked too.
    Containers are left to the sweeps, which keep the logs that are wanted.

    Raises:
        EngineError: it is not proven that nothing is left.
    """
    listed = {
        SegmentRef(job=view.job, epoch=view.epoch, node=node) for view in tools.engine.survey(node)
    }
    living = {found.ref for found in tools.engine.census(node).segments}
    for ref in sorted(listed | living, key=lambda ref: (ref.job, ref.epoch)):
        tools.engine.kill(ref)
    tools.observer.set_gone(node, gone=False)
    _log.info("node.returned", node=node, swept=len(listed | living))


def keep_log(tools: Tools, job: Job, ref: SegmentRef) -> bool:
    """
    Copy what the segment printed into the job's own files, once; tell whether it is there.

    Where that fails the container stays, and a later sweep keeps the log.
    """
    if tools.spool.has_log(job.id, ref.epoch):
        return True
    try:
        tools.spool.put_log(job.id, ref.epoch, tools.engine.logs(ref))
    except (EngineError, OSError) as exc:
        _log.warning("log.not_kept", job=job.id, node=ref.node, reason=str(exc))
        return False
    if job.state in TERMINAL:
        # The output was written without it.
        _write_output(tools, job)
    return True


def remove(tools: Tools, ref: SegmentRef) -> None:
    """Remove the container if its log has been kept; a later sweep does it otherwise."""
    if not tools.spool.has_log(ref.job, ref.epoch):
        return
    try:
        with tools.observer.removing(ref):
            tools.engine.remove(ref)
    except EngineError as exc:
        _log.warning("container.not_removed", job=ref.job, node=ref.node, reason=str(exc))


def finish(tools: Tools, job: Job, intent: IntentId) -> None:
    """
    Write the submitter's output file and delete what only a live job needs.

    Whatever comes in between, the next daemon finds the intent and does it again.
    """
    _write_output(tools, job)
    clear(tools, job.id, intent)


def clear(tools: Tools, job: JobId, intent: IntentId) -> None:
    """Delete what only a live job needs; where that fails the intent stays for another try."""
    tools.spool.drop_env(job)
    try:
        tools.engine.forget(job)
    except EngineError as exc:
        _log.warning("checkpoints.not_removed", job=job, reason=str(exc))
        return
    tools.store.finish(intent, now=tools.clock.now(), note="")


def _write_output(tools: Tools, job: Job) -> None:
    if job.spec.output is not None:
        try:
            tools.output.write(job.spec.output, job.spec.owner, _log_of(tools, job))
        except OutputError as exc:
            _log.warning("output.not_written", job=job.id, reason=str(exc))
            tools.store.record(
                Change(job=job.id, reason=f"{job.reason}; output not written: {exc}"),
                now=tools.clock.now(),
            )


def _log_of(tools: Tools, job: Job) -> list[bytes]:
    chunks: list[bytes] = []
    for piece in log_pieces(tools, job.id):
        chunks += tools.spool.log(job.id, piece.epoch, until=piece.until)
    return chunks


def log_pieces(tools: Tools, job: JobId) -> tuple[Piece, ...]:
    """Return what makes up the job's log, in order."""
    known = tools.store.job(job)
    if known is None:
        return ()
    mode = known.spec.checkpoint
    return log_chain(mode, tools.store.segments(job), tools.store.checkpoints(job))
