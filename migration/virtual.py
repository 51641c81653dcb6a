"""The jobs and nodes that the fake engine runs: plain values that progress with a given time."""

from dataclasses import dataclass, field
from datetime import datetime

from daemon.core.types import (
    Checkpoint,
    Generation,
    JobId,
    NodeName,
    Phase,
    SegmentRef,
    SegmentView,
)


def container_name(ref: SegmentRef) -> str:
    """Return the name of a segment's container on the fake engine."""
    return f"stopgap-{ref.node}-{ref.job}-{ref.epoch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a job does: it prints the numbers from 0, one a line, and perhaps ends."""

    #: Running time; None runs for ever.
    seconds: float | None = None
    exit_code: int = 0
    line_seconds: float = 1.0
    peak_memory_mib: int = 1
    #: Its exit code when it gets SIGTERM; None lets it go on.
    on_term: int | None = 143
    #: False stands for what CRIU cannot dump.
    dumpable: bool = True
    #: Why it cannot be dumped, in plain words.
    obstacle: str = "criu: it cannot be dumped"
    #: What a checkpoint is said to have taken; no time passes.
    dump_seconds: float = 0.0
    size_bytes: int = 1 << 20
    #: It appends what it prints to a file on the shared file system as well.
    writes: bool = False

    def text(self, begun: float, done: float) -> bytes:
        """Return what it prints between two amounts of work."""
        first, last = (int(seconds / self.line_seconds + 1e-9) for seconds in (begun, done))
        return b"".join(b"%d\n" % number for number in range(first, last))


@dataclass(slots=True, kw_only=True)
class VirtualSegment:
    ref: SegmentRef
    program: Program
    #: Seconds of its program done when the segment began, and at ``since``.
    begun: float
    done: float
    since: float
    image: str
    frozen: bool = False
    exit_code: int | None = None
    oom_killed: bool = False
    #: Docker's record; without it a living process is an orphan.
    listed: bool = True
    #: When it began to run, or to stand still, and what was done by then; oldest first.
    turns: list[tuple[float, float, bool]] = field(default_factory=list)
    #: What the job's file held when the segment began.
    file: bytes = b""

    def __post_init__(self) -> None:
        self.turns.append((self.since, self.done, self.frozen))

    @property
    def alive(self) -> bool:
        return self.exit_code is None

    def advance(self, now: float) -> None:
        if self.alive and not self.frozen:
            self.done += now - self.since
            limit = self.program.seconds
            if limit is not None and self.done >= limit:
                self.done = limit
                self.exit_code = self.program.exit_code
        self.since = now

    def set_frozen(self, *, frozen: bool) -> None:
        self.frozen = frozen
        self.turns.append((self.since, self.done, frozen))

    def done_at(self, moment: float) -> float:
        """Return what was done at a moment of its life."""
        past = [turn for turn in self.turns if turn[0] <= moment] or self.turns[:1]
        began, done, frozen = past[-1]
        return min(self.done, done if frozen else done + max(0.0, moment - began))

    def printed(self, until: float | None = None) -> bytes:
        done = self.done if until is None else self.done_at(until)
        return self.program.text(self.begun, done)

    def written(self) -> bytes:
        """Return what the job's file holds."""
        return self.file + (self.printed() if self.program.writes else b"")

    def view(self) -> SegmentView:
        phase = Phase.FROZEN if self.frozen else Phase.RUNNING
        return SegmentView(
            job=self.ref.job,
            epoch=self.ref.epoch,
            container=container_name(self.ref),
            phase=phase if self.alive else Phase.EXITED,
            exit_code=self.exit_code,
            oom_killed=self.oom_killed,
            image=self.image,
        )


@dataclass(slots=True, kw_only=True)
class VirtualNode:
    boot: int = 1
    reachable: bool = True
    #: When a prolog last ran here.
    mark: datetime | None = None
    segments: dict[SegmentRef, VirtualSegment] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedState:
    """A generation: how far the program was, and how long its file."""

    checkpoint: Checkpoint
    done: float
    length: int


@dataclass(slots=True, kw_only=True)
class VirtualDisk:
    """What all nodes share: generations, and the files that jobs write."""

    saved: dict[JobId, dict[Generation, SavedState]] = field(default_factory=dict)
    #: Which node has a job's generations, where nodes share nothing.
    holders: dict[JobId, NodeName] = field(default_factory=dict)
    #: The same by a test's word, for jobs that it was given for.
    held_by: dict[JobId, NodeName] = field(default_factory=dict)
    spoiled: set[tuple[JobId, Generation]] = field(default_factory=set)
    #: What somebody else did to a job's files since its last checkpoint.
    meddled: dict[JobId, tuple[str, ...]] = field(default_factory=dict)
    #: The newest segment of each job: it has the job's file.
    writers: dict[JobId, VirtualSegment] = field(default_factory=dict)

    def written(self, job: JobId) -> bytes:
        """Return what the job's file holds."""
        writer = self.writers.get(job)
        return writer.written() if writer else b""

    def keep(self, checkpoint: Checkpoint, segment: VirtualSegment) -> None:
        """Store a generation."""
        state = SavedState(checkpoint=checkpoint, done=segment.done, length=len(segment.written()))
        self.saved.setdefault(checkpoint.job, {})[checkpoint.generation] = state
        holder = self.held_by.get(checkpoint.job, segment.ref.node)
        self.holders[checkpoint.job] = holder
        self.meddled.pop(checkpoint.job, None)

    def all_of(self, job: JobId) -> tuple[Checkpoint, ...]:
        """List the job's valid generations, oldest first."""
        return tuple(
            state.checkpoint
            for generation, state in sorted(self.saved.get(job, {}).items())
            if (job, generation) not in self.spoiled
        )

    def forget(self, job: JobId, keep: Generation | None) -> None:
        """Delete what is older than the kept generation."""
        here = self.saved.get(job, {})
        self.saved[job] = {g: s for g, s in here.items() if keep is not None and g >= keep}
