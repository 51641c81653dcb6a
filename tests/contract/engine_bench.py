"""What the suites for engines need: programs, a bench of two nodes, and looks at them."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Protocol

from daemon.core.types import (
    Checkpoint,
    CheckpointKind,
    Epoch,
    Generation,
    JobId,
    NodeName,
    SegmentView,
)
from migration.base import CgroupCensus, Engine, StartOrder


class Act(StrEnum):
    """The programs that a bench knows."""

    #: Prints 0, 1, 2 … a line each, many a second, for ever.
    COUNT = "count"
    #: The same, and appends each line to a file on the shared file system, which it keeps open.
    WRITE = "write"
    #: Prints ten lines, 0 to 9, and ends with exit code 3.
    FAIL = "fail"
    #: Takes more memory than it was given.
    HOG = "hog"


class Bench(Protocol):
    """Two nodes to try an engine on."""

    here: NodeName
    there: NodeName

    @property
    def engine(self) -> Engine:
        """The engine on trial."""

    def order(self, act: Act, node: NodeName) -> StartOrder:
        """Return an order for a job that was never used before, epoch 1."""

    def await_(self, condition: Callable[[], bool]) -> None:
        """Let time pass until the condition holds; fail when it never does."""

    def cut(self, node: NodeName) -> None:
        """Make the node's engine unreachable."""

    def mend(self, node: NodeName) -> None:
        """Make it reachable again."""

    def run_prolog(self, node: NodeName) -> None:
        """Do what the batch system does before a priority job on that node."""

    def spoil(self, job: JobId, generation: Generation) -> None:
        """Damage a stored generation."""

    def written(self, job: JobId) -> bytes:
        """Return what the file of a job that writes holds."""

    def meddle(self, job: JobId) -> str:
        """Put another file in its place, and return the name by which the job knows it."""


def job_numbers(first: int = 1) -> Callable[[], JobId]:
    """Return a function that gives a new job number at each call."""
    numbers = itertools.count(first)
    return lambda: JobId(next(numbers))


def next_order(
    order: StartOrder, node: NodeName, digest: str, generation: Generation
) -> StartOrder:
    ref = replace(order.ref, epoch=Epoch(order.ref.epoch + 1), node=node)
    return replace(order, ref=ref, image_digest=digest, generation=generation)


def origin(checkpoint: Checkpoint) -> tuple[Epoch, CheckpointKind]:
    return checkpoint.epoch, checkpoint.kind


def views_of(bench: Bench, order: StartOrder) -> list[SegmentView]:
    found = bench.engine.survey(order.ref.node)
    return [v for v in found if (v.job, v.epoch) == (order.ref.job, order.ref.epoch)]


def view_of(bench: Bench, order: StartOrder) -> SegmentView:
    (view,) = views_of(bench, order)
    return view


def census_of(bench: Bench, order: StartOrder) -> list[CgroupCensus]:
    return [s for s in bench.engine.census(order.ref.node).segments if s.ref == order.ref]


def processes_of(bench: Bench, order: StartOrder) -> int:
    return sum(s.processes for s in census_of(bench, order))


def printed_by(bench: Bench, order: StartOrder) -> int:
    return b"".join(bench.engine.logs(order.ref)).count(b"\n")


def lines(first: int, last: int) -> bytes:
    return b"".join(b"%d\n" % number for number in range(first, last))
