"""What the end of a segment means for its job, and which segments make up its log.

An end is only what the job did itself.  SIGKILL and SIGTERM that neither we nor the
kernel's OOM killer sent are a fault of the node: the job is resumed, never failed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta

from daemon.core.lifecycle import Event, waiting_event
from daemon.core.types import (
    Checkpoint,
    CheckpointKind,
    CheckpointMode,
    Epoch,
    Generation,
    Job,
    JobState,
    Outcome,
    Phase,
    Segment,
    SegmentView,
)

#: 128 + SIGKILL and 128 + SIGTERM.
_ENDED_FROM_OUTSIDE = frozenset({137, 143})
#: 128 + SIGILL.
_ILLEGAL_INSTRUCTION = 132
_ASTRAY = "an illegal instruction soon after a move: this kind of processor will not do"
#: What Docker reports for a container whose end it did not witness.
_UNWITNESSED = 255


#: What shells and Docker's init say with these codes (docker run(1), "Exit status").
_EXITS = {
    126: "exited with 126: the command cannot be run; stopgap logs shows what it said",
    127: "exited with 127: there is no such command in the image; stopgap logs shows what it said",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How a segment ended and what follows."""

    outcome: Outcome
    event: Event
    reason: str
    exit_code: int | None = None
    #: The node's fault: counted, and followed by a pause.
    fault: bool = False
    #: The job was moved to a processor that is not like the one it came from.
    astray: bool = False


def judge(
    job: Job,
    view: SegmentView | None,
    saved: Checkpoint | None,
    *,
    moved_for: timedelta | None = None,
    sigill: timedelta = timedelta(),
) -> Verdict:
    """
    Return what the end of the job's newest segment means.

    ``moved_for`` is the time since its resume, None for a start from the beginning.  Within
    ``sigill`` an illegal instruction is the fault of the move.
    """
    if saved is not None:
        return Verdict(
            outcome=Outcome.EVICTED,
            event=Event.SAVED,
            reason=f"checkpointed as generation {saved.generation}",
        )
    if view is None or view.phase is not Phase.EXITED or view.exit_code is None:
        return _crash(job, "its container is gone without a checkpoint")
    if view.oom_killed:
        return Verdict(
            outcome=Outcome.FAILED,
            event=Event.FAILED,
            exit_code=view.exit_code,
            reason=f"used more than its {job.spec.memory_mib} MiB; submit it with more --mem",
        )
    unseen = view.unwitnessed and view.exit_code == _UNWITNESSED
    if view.exit_code in _ENDED_FROM_OUTSIDE or unseen:
        return _crash(job, f"ended from outside (exit code {view.exit_code})")
    if view.exit_code == _ILLEGAL_INSTRUCTION and moved_for is not None and moved_for <= sigill:
        return replace(_crash(job, _ASTRAY), astray=True)
    return _exit(view.exit_code)


def _exit(code: int) -> Verdict:
    if code == 0:
        return Verdict(
            outcome=Outcome.COMPLETED, event=Event.COMPLETED, exit_code=0, reason="exited with 0"
        )
    return Verdict(
        outcome=Outcome.FAILED,
        event=Event.FAILED,
        exit_code=code,
        reason=_EXITS.get(code, f"exited with {code}"),
    )


def _crash(job: Job, what: str) -> Verdict:
    if job.state in {JobState.STARTING, JobState.RESUMING}:
        what = f"was not placed: {what}"
    return Verdict(outcome=Outcome.CRASHED, event=waiting_event(job), reason=what, fault=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a job's log: what one segment printed, as far as it counts."""

    epoch: Epoch
    #: Only what it printed until this checkpoint; None is all of it.
    until: Generation | None = None


def log_chain(
    mode: CheckpointMode, segments: Iterable[Segment], checkpoints: Iterable[Checkpoint]
) -> tuple[Piece, ...]:
    """
    Return what makes up the job's log, in order.

    A job that saves itself goes on where it likes: its log is all that it printed.  For others
    it is the newest segment, the one whose checkpoint it was resumed from, and so on
    back to a start from the beginning.  What a segment printed after that checkpoint is
    printed again by the one that does its work over, so it is not part of the log.
    """
    by_epoch = {segment.epoch: segment for segment in segments}
    if mode is CheckpointMode.SIGNAL:
        return tuple(Piece(epoch=epoch) for epoch in sorted(by_epoch))
    made: dict[Generation, Checkpoint] = {c.generation: c for c in checkpoints}
    chain: list[Piece] = []
    epoch, until = max(by_epoch, default=None), None
    while epoch is not None and epoch in by_epoch and all(epoch < p.epoch for p in chain):
        chain.append(Piece(epoch=epoch, until=until))
        resumed_from = by_epoch[epoch].resumed_from
        saved = made.get(resumed_from) if resumed_from is not None else None
        epoch = None if saved is None else saved.epoch
        until = None if saved is None or saved.kind is CheckpointKind.EVICTION else resumed_from
    return tuple(reversed(chain))
