"""What every store of checkpoints promises, wherever they lie.

The shim writes generations and receipts into the job's directory on its node; a store
prepares that directory, reads it, and deletes what is not needed any more.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from daemon.core.types import (
    Checkpoint,
    CheckpointKind,
    Epoch,
    Generation,
    JobId,
    NodeName,
    SegmentRef,
)
from migration.manifest import CheckpointReceipt, ResumeReceipt


class StoreError(OSError):
    """The checkpoints of a node cannot be read or written; the text says why."""


class RootError(StoreError):
    """The root is not that of this installation's checkpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What lies in a job's directory on the node of one of its segments, at one moment."""

    #: A shim works on the job; looked at before all else, for it writes until it is not busy.
    busy: bool
    #: What the segment's last checkpoint call did.
    receipt: CheckpointReceipt | None
    #: The valid generations, oldest first.
    checkpoints: tuple[Checkpoint, ...]

    def ending(self, epoch: Epoch) -> Checkpoint | None:
        """
        Return the checkpoint that the segment ended with, if there is one.

        The receipt names it.  A shim that was killed between its commit and its receipt
        has left a manifest of the segment's epoch, which is as good.
        """
        said = self.receipt
        if said is not None and said.evicted and said.generation is not None:
            return next((c for c in self.checkpoints if c.generation == said.generation), None)
        ends = [c for c in self.checkpoints if c.kind is CheckpointKind.EVICTION]
        return next((c for c in reversed(ends) if c.epoch == epoch), None)


class Store(Protocol):
    """
    The checkpoints of one installation.

    ``on_nodes`` says whether what was saved on a node is out of reach when that node is.

    Every method may raise ``OSError`` (they cannot be read or written, or what is not there
    may only be out of sight) and, where a node is asked, ``EngineUnreachableError``.
    """

    on_nodes: bool

    def ready(self, node: NodeName) -> None:
        """Find out whether a checkpoint could be written for that node now."""

    def prepare(self, ref: SegmentRef, generation: Generation | None = None) -> None:
        """
        Make the job's directory where the segment will find it, and take back an old cancel.

        With a generation that one is there afterwards, whole, wherever it was before.

        Raises:
            CheckpointAwayError: it lies where nobody answers.
            NotResumableError: it is nowhere, or damaged.
            NodeUnfitError: the segment's node is at fault.
        """

    def ask(self, ref: SegmentRef, kind: CheckpointKind | None) -> CheckpointReceipt | None:
        """
        Write down what the segment's next checkpoint is for; None lets the segment end with it.

        Of a kind, the segment goes on from every checkpoint of it until this is called again: a
        state and not a word to one call, for one that comes through late must not end a job
        that nobody wants to have ended.  An old receipt is removed, so that the next call is
        told from it.  When the segment has ended with a checkpoint before, nothing is done and
        that one's receipt is returned.
        """

    def report(self, ref: SegmentRef) -> Report:
        """Return what there is of the job on the segment's node."""

    def resume_receipt(self, ref: SegmentRef) -> ResumeReceipt | None:
        """Return what the segment's resume did."""

    def checkpoints(self, job: JobId) -> tuple[Checkpoint, ...]:
        """Return the job's valid generations, oldest first."""

    def has_ended(self, ref: SegmentRef) -> bool:
        """Tell whether the segment is known to have ended with a checkpoint; asks no node."""

    def note_end(self, ref: SegmentRef) -> None:
        """
        Leave a mark, once, that the segment is proven gone.

        What is written to the job's files from now on is not its own doing.
        """

    def cancel(self, ref: SegmentRef) -> None:
        """Ask the shim to end the checkpoint or resume of the job that is under way."""

    def forget(self, job: JobId, *, keep: Generation | None = None) -> None:
        """
        Delete what is older than the kept generation and what was never finished.

        Newer generations that are whole stay: deleting them could only lose work.  With
        nothing to keep the job's directory goes.  The caller has proven the kept one: a
        segment runs that was resumed from it, or made it.
        """

    def spread(self, ref: SegmentRef, generation: Generation) -> None:
        """
        Have a kept generation lie on as many nodes as the site wants, where it lies on nodes.

        May take as long as the stream; where it cannot be done it is left at fewer.
        """

    def where(self, job: JobId) -> Mapping[Generation, tuple[NodeName, ...]]:
        """Return the nodes that hold each generation; empty when they lie beside all nodes."""

    def answered(self, node: NodeName) -> None:
        """Take note that the node answers: what could not be done there before is done."""
