"""What the end of a segment means for its job, and which segments make up its log.

An end is only what the job did itself.  SIGKILL and SIGTERM that neither we nor the
kernel's OOM killer sent are a fault of the node: the job is resumed, never failed.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from daemon.core.lifecycle import Event, waiting_event
from daemon.core.types import (
    Checkpoint,
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


def judge(job: Job, view: SegmentView | None, saved: Checkpoint | None) -> Verdict:
    """Return what the end of the job's newest segment means."""
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
    if view.exit_code == 0:
        return Verdict(
            outcome=Outcome.COMPLETED, event=Event.COMPLETED, exit_code=0, reason="exited with 0"
        )
    return Verdict(
        outcome=Outcome.FAILED,
        event=Event.FAILED,
        exit_code=view.exit_code,
        reason=_EXITS.get(view.exit_code, f"exited with {view.exit_code}"),
    )


def _crash(job: Job, what: str) -> Verdict:
    if job.state in {JobState.STARTING, JobState.RESUMING}:
        what = f"was not placed: {what}"
    return Verdict(outcome=Outcome.CRASHED, event=waiting_event(job), reason=what, fault=True)


def log_chain(
    mode: CheckpointMode, segments: Iterable[Segment], checkpoints: Iterable[Checkpoint]
) -> tuple[Epoch, ...]:
    """
    Return the segments whose output makes up the job's log, in order.

    A job that saves itself goes on where it likes: its log is all that it printed.  For others
    they are the newest segment, the one whose checkpoint it was resumed from, and so on
    back to a start from the beginning.  What a crashed segment printed is printed again by
    the one that does its work over, so it is not part of the log.
    """
    by_epoch = {segment.epoch: segment for segment in segments}
    if mode is CheckpointMode.SIGNAL:
        return tuple(sorted(by_epoch))
    made_by: dict[Generation, Epoch] = {c.generation: c.epoch for c in checkpoints}
    chain: list[Epoch] = []
    epoch = max(by_epoch, default=None)
    while epoch is not None and epoch in by_epoch and epoch not in chain:
        chain.append(epoch)
        resumed_from = by_epoch[epoch].resumed_from
        epoch = made_by.get(resumed_from) if resumed_from is not None else None
    return tuple(reversed(chain))
