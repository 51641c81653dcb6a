"""When each waiting priority job will start at the latest: conservative backfill.

Nodes are counted, not named: a job that asks for certain nodes is promised any, and may be late.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from adapters.mock_slurm.schedule import Want

_NEVER = float("inf")


class Agenda:
    """How many nodes are free from when on, if every running job uses its whole limit."""

    def __init__(self, now: float, free: int, ends: Iterable[tuple[float, int]]) -> None:
        """Take the free nodes, and those of running jobs, earliest end first."""
        self._times = [now]
        self._free = [free]
        for at, nodes in ends:
            if at <= self._times[-1]:
                self._free[-1] += nodes
            else:
                self._times.append(at)
                self._free.append(self._free[-1] + nodes)

    def earliest(self, want: Want) -> float:
        """Return when so many nodes are free for so long; infinity is never."""
        times, free, last = self._times, self._free, len(self._times)
        start = 0
        while start < last:
            if free[start] < want.nodes:
                start += 1
                continue
            end = times[start] + want.limit
            position = start + 1
            while position < last and times[position] < end and free[position] >= want.nodes:
                position += 1
            if position == last or times[position] >= end:
                return times[start]
            start = position + 1
        return _NEVER

    def take(self, at: float, want: Want) -> bool:
        """Give the nodes away for that time; return whether there were as many."""
        return self._add(at, want, -want.nodes) >= 0

    def put_back(self, at: float, want: Want) -> None:
        """Undo what ``take`` did."""
        self._add(at, want, want.nodes)

    def _add(self, at: float, want: Want, nodes: int) -> int:
        first = self._cut(at)
        last = self._cut(at + want.limit)
        self._free[first:last] = [count + nodes for count in self._free[first:last]]
        return min(self._free[first:last], default=0)

    def _cut(self, at: float) -> int:
        """Return the position of the step at that time, made if there is none."""
        position = bisect_left(self._times, at)
        if position == len(self._times) or self._times[position] != at:
            self._times.insert(position, at)
            self._free.insert(position, self._free[position - 1])
        return position


def promise(
    now: float,
    free: int,
    ends: Sequence[tuple[float, int]],
    waiting: Sequence[Want],
    promised: Sequence[float | None],
) -> list[float]:
    """
    Return when each waiting job starts at the latest, in the order of the queue.

    What was promised is kept or bettered, one job after the other, so that nobody is made late
    by who comes after him.  Only when nodes were lost all promises are made anew.

    Args:
        promised: what was returned the last time; None for jobs that are new.
    """
    agenda = Agenda(now, free, ends)
    kept = [None if at is None else max(at, now) for at in promised]
    if not all(at is None or agenda.take(at, want) for at, want in zip(kept, waiting, strict=True)):
        agenda = Agenda(now, free, ends)
        kept = [None] * len(waiting)
    found = []
    for at, want in zip(kept, waiting, strict=True):
        if at is not None:
            agenda.put_back(at, want)
        start = agenda.earliest(want)
        if start != _NEVER:
            agenda.take(start, want)
        found.append(start)
    return found
