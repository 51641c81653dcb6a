"""What every engine promises: one protocol, the orders it takes, its errors.

An engine acts on the containers of nodes and reports what it found.  It never
decides anything.  Every call has a deadline of its own and may be repeated.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from daemon.core.types import (
    AfterCrash,
    Checkpoint,
    CheckpointKind,
    Generation,
    JobId,
    JobSpec,
    Machine,
    NodeName,
    SegmentRef,
    SegmentView,
)


class EngineError(Exception):
    """Base of everything an engine raises."""


class EngineUnreachableError(EngineError):
    """The node's engine did not answer in time.  Nothing is known about the node."""


class OrderRefusedError(EngineError):
    """The order cannot be carried out on any node: the image or a mount is at fault."""


class NodeUnfitError(EngineError):
    """The order failed because of this node; another one may do."""


class NotSavedError(EngineError):
    """The checkpoint failed.  The job is alive, in the state in which it was found."""

    def __init__(self, reason: str, *, frozen: bool) -> None:
        super().__init__(reason)
        self.frozen = frozen


class NotResumableError(EngineError):
    """The generation cannot be resumed here; no instruction of the job ran."""


class ChangedFilesError(NotResumableError):
    """
    Files of the job have changed since the checkpoint, and the order says ``hold``.

    Nothing was touched: an order with ``resume`` goes on from the same files.
    """

    def __init__(self, reason: str, *, files: tuple[str, ...]) -> None:
        super().__init__(reason)
        #: One line each, for people: the path as the job sees it, and what happened to it.
        self.files = files


class CheckpointAwayError(EngineError):
    """The generation lies on nodes that do not answer.  Nothing was begun; it waits for them."""


class StaleOrderError(EngineError):
    """What the order relied on was seen too long ago.  Nothing was begun; look again first."""


class StillAliveError(EngineError):
    """Processes of the segment survived; its node must be treated as occupied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOrder:
    """Everything needed for the next segment of a job."""

    ref: SegmentRef
    spec: JobSpec
    #: Values of the job's environment; never logged, never stored in the database.
    env: Mapping[str, str]
    #: The pinned image; None pins what ``spec.image`` names on the node now.
    image_digest: str | None
    #: When the batch system was asked and said that the node is idle.  The node
    #: refuses the order if a prolog has run there since.
    seen: datetime
    #: What to resume from; None is a start from the beginning.
    generation: Generation | None = None
    #: For a generation that is older than what the job did: its node crashed, or it was killed
    #: without being saved.  Before anything of the job runs, the files below its writable mounts
    #: that it had open for writing, or that ``spec.results`` names, are cut back to what they were
    #: (the tails are kept with the job's checkpoints until ``forget`` takes them all), and
    #: this says what to do about those that changed in another way.  None: the job did nothing
    #: after the generation, as after an eviction, and its files are left alone.
    after_crash: AfterCrash | None = None
    #: Files that have changed since then without the job's doing, as the nodes name them.
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A segment that runs."""

    container: str
    image_digest: str
    #: From the order to the first instruction.
    seconds: float
    #: After a crash, with ``resume``: files that have changed and were not put right, one line
    #: each, for people.
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A committed checkpoint whose processes are proven gone."""

    checkpoint: Checkpoint
    #: From the call to the moment the job was frozen.
    freeze_seconds: float
    #: From the call to the empty cgroup.
    vacate_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A committed checkpoint of a segment that goes on."""

    checkpoint: Checkpoint
    #: How long the job stood still for it.
    freeze_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupCensus:
    """One segment's cgroup, read on the node."""

    ref: SegmentRef
    processes: int
    frozen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """What lives on a node by its own kernel's word, not by Docker's."""

    boot_id: str
    segments: tuple[CgroupCensus, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What must be the same, or fit, for a job to go on on another node."""

    engine: str
    kernel: str
    runc: str
    criu: str
    boot_id: str
    cgroup: str
    #: A digest of ``cpu``.
    cpu_flags: str
    architecture: str = ""
    #: The processor's flags, blanks between them.
    cpu: str = ""
    #: Whether checkpoints write only what has changed since the last; None is not known.
    incremental: bool | None = None
    #: The version of zstd; empty is not there, None is not known.
    zstd: str | None = None

    @property
    def machine(self) -> Machine:
        """Return what a checkpoint's own machine is compared with (``daemon.core.fit``)."""
        return Machine(
            architecture=self.architecture,
            cgroup=self.cgroup,
            cpu=frozenset(self.cpu.split()),
            criu=self.criu,
        )

    @property
    def digest(self) -> str:
        """Changes whenever the canary has to be run again."""
        return f"{self.engine}|{self.kernel}|{self.runc}|{self.criu}|{self.boot_id}|{self.cgroup}"


class Engine(Protocol):
    """The containers of all nodes."""

    @property
    def own_disks(self) -> bool:
        """Whether checkpoints lie on the nodes: those of a dead node are out of reach."""

    def survey(self, node: NodeName) -> tuple[SegmentView, ...]:
        """
        List the containers of this instance on the node, ended ones too.

        Raises:
            EngineUnreachableError: nothing is known about the node.
        """

    def ready(self, node: NodeName) -> None:
        """
        Find out whether an order to the node makes sense now.

        Raises:
            EngineUnreachableError: the engine does not answer, or the checkpoints cannot be
                written; nothing was ordered.
        """

    def place(self, order: StartOrder) -> Placed:
        """
        Start or resume a segment, once.

        On any error no process of the segment is left and its container is removed,
        unless the engine is out of reach: then a census must tell.

        Raises:
            OrderRefusedError: no node could do it (unknown image, missing mount source).
            ChangedFilesError: the order says ``hold``, and there is something to look at.
            NotResumableError: the generation is at fault, or does not fit this node.
            CheckpointAwayError: the generation lies where nobody answers.
            StaleOrderError: bringing the generation took long; it is there now.
            NodeUnfitError: the node is at fault, or a prolog has claimed it.
            EngineUnreachableError: it may or may not have happened.
        """

    def freeze(self, ref: SegmentRef) -> None:
        """Stop the segment's processes where they are; idempotent."""

    def thaw(self, ref: SegmentRef) -> None:
        """Let them go on; idempotent."""

    def checkpoint(self, ref: SegmentRef, *, deadline_seconds: float) -> Saved:
        """
        Save the segment and then end it: the processes are killed only after the commit.

        Raises:
            NotSavedError: the job goes on in the state in which it was found.
            EngineUnreachableError: it may or may not have happened; ask ``settled``.
        """

    def save(
        self,
        ref: SegmentRef,
        *,
        deadline_seconds: float,
        kind: CheckpointKind = CheckpointKind.PERIODIC,
    ) -> Kept:
        """
        Save the segment and let it go on, in the state in which it was found.

        It stands still while its images and its writable layer are written.  From the call on,
        and until ``checkpoint`` is called for the segment, whatever asks the node for a
        checkpoint of it, also an earlier call that comes through late, keeps it alive.

        Raises:
            NotSavedError: the job goes on in the state in which it was found; the text says in
                plain words what stands in the way.
            EngineUnreachableError: it may or may not have happened; the job may stand still until
                ``thaw``.  ``checkpoints`` tells whether there is a new one.
        """

    def settled(self, ref: SegmentRef) -> Checkpoint | None:
        """
        Return the checkpoint that this segment committed at its end, if there is one.

        Never one that it went on from.

        Raises:
            EngineUnreachableError: the checkpoints cannot be read; there may be one.
        """

    def checkpoints(self, job: JobId) -> tuple[Checkpoint, ...]:
        """
        List what the job can be resumed from, of every kind, oldest first.

        Raises:
            EngineUnreachableError: the checkpoints cannot be read; there may be some.
        """

    def signal(self, ref: SegmentRef, signal: int) -> None:
        """Send a signal to the segment's first process."""

    def kill(self, ref: SegmentRef) -> None:
        """
        End every process of the segment and prove it from the node's cgroups; idempotent.

        Raises:
            StillAliveError: something survived.
            EngineUnreachableError: nothing is proven.
        """

    def logs(
        self, ref: SegmentRef, *, follow: bool = False, until: datetime | None = None
    ) -> Iterator[bytes]:
        """
        Yield what the segment printed, from its beginning, stdout and stderr in order.

        ``until`` is the time of a checkpoint of the segment: what was printed after it is left
        out, for the segment that is resumed from it will print it again.

        Raises:
            EngineError: with ``until``, there is no container any more to tell it.
        """

    def remove(self, ref: SegmentRef) -> None:
        """Remove the container and its cgroup; idempotent."""

    def census(self, node: NodeName) -> Census:
        """Read the node's cgroups through a program of its own."""

    def forget(self, job: JobId, *, keep: Generation | None = None) -> None:
        """Delete the job's generations older than one, and its directory when none is kept."""

    def where(self, job: JobId) -> Mapping[Generation, tuple[NodeName, ...]]:
        """Return the nodes that hold each generation, as far as known; empty: beside them all."""
