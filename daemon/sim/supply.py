"""The low-priority jobs that wait to be run: a backlog that never ends, or those of a file."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path
from random import Random
from typing import Self

from daemon.sim.workload import TraceError


@dataclass(frozen=True, slots=True)
class Size:
    """Jobs that look the same to whoever places them."""

    cpus: int
    #: What is reserved for a job, and what a checkpoint of it writes.
    memory_mib: int
    uid: int = 1000


@dataclass(frozen=True, slots=True)
class Order:
    """One job that somebody submits."""

    submit: float
    size: Size
    #: What it has to do, in seconds of undisturbed running.
    seconds: float


#: 64 MiB to 2 GiB, each twice the last.
MIXED_MIB = (64, 128, 256, 512, 1024, 2048)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """What the jobs of the endless backlog are like; sizes are equally frequent."""

    memory_mib: tuple[int, ...] = MIXED_MIB
    #: Zero is all of a node.
    cpus: int = 0
    hours: float = 24.0
    #: Jobs that wait at any time.
    backlog: int = 0


class Supply:
    """Hands out jobs in order of submission."""

    def __init__(self, sizes: tuple[Size, ...], orders: Iterator[Order], backlog: int) -> None:
        self.sizes = sizes
        #: At most so many wait at a time; further ones come as those are placed.
        self.backlog = backlog
        self._orders = orders
        self._next = next(orders, None)

    @classmethod
    def endless(cls, mix: Mix, *, begin: float, nodes: int, seed: int) -> Self:
        """Return a backlog that never runs dry; the seed draws the sizes."""
        sizes = tuple(Size(mix.cpus, mib) for mib in mix.memory_mib)
        draw = Random(seed)  # noqa: S311  a workload, not a secret

        def orders() -> Iterator[Order]:
            while True:
                yield Order(begin, draw.choice(sizes), mix.hours * 3600)

        return cls(sizes, orders(), mix.backlog or 2 * nodes)

    @classmethod
    def of_file(cls, path: Path, *, begin: float) -> Self:
        """
        Return the jobs of a CSV file, with columns submit, seconds, cpus, memory_mib, uid.

        ``submit`` counts seconds from the begin of the trace; all but ``seconds`` may be left out.

        Raises:
            TraceError: it cannot be read, or makes no sense.
        """
        try:
            with path.open(encoding="utf-8", newline="") as file:
                orders = [_order(row, begin) for row in csv.DictReader(file)]
        except (OSError, KeyError, ValueError) as exc:
            raise TraceError(
                f"{path} is no list of jobs: {exc!r}; columns are submit, seconds, cpus, "
                "memory_mib, uid"
            ) from exc
        orders.sort(key=lambda order: order.submit)
        sizes = tuple(dict.fromkeys(order.size for order in orders))
        if not orders:
            raise TraceError(f"{path} has no jobs")
        return cls(sizes, iter(orders), len(orders))

    def due(self) -> float:
        """Return when the next job is submitted; infinity is never."""
        return inf if self._next is None else self._next.submit

    def fetch(self, now: float, most: int) -> Iterator[Order]:
        """Yield the jobs that are submitted until now, as many as may wait."""
        for _ in range(most):
            if self._next is None or self._next.submit > now:
                return
            order, self._next = self._next, next(self._orders, None)
            yield order


def _order(row: dict[str, str], begin: float) -> Order:
    seconds = float(row["seconds"])
    size = Size(
        int(row.get("cpus") or 1), int(row.get("memory_mib") or 1024), int(row.get("uid") or 1000)
    )
    if seconds <= 0 or size.cpus <= 0 or size.memory_mib <= 0:
        raise ValueError(f"no job: {row}")
    return Order(begin + float(row.get("submit") or 0), size, seconds)
