"""The jobs and nodes that the fake engine runs: plain values that progress with a given time."""

from dataclasses import dataclass, field
from datetime import datetime

from daemon.core.types import Phase, SegmentRef, SegmentView


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
    #: What a checkpoint is said to have taken; no time passes.
    dump_seconds: float = 0.0
    size_bytes: int = 1 << 20


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

    def printed(self) -> bytes:
        first, last = (int(s / self.program.line_seconds + 1e-9) for s in (self.begun, self.done))
        return b"".join(b"%d\n" % number for number in range(first, last))

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
