"""Which waiting priority job gets which nodes: first come first served, EASY backfill.

Pure functions of numbers.  Nodes are given by their position, free ones in rising
order, so that the same input gives the same choice.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Want:
    """What a waiting priority job asks for."""

    nodes: int
    #: Seconds after which the batch system ends it.
    limit: float
    #: Exactly these nodes; empty is any.
    named: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Shadow:
    """The reservation of the first job that cannot start: EASY gives it to no other."""

    at: float
    nodes: frozenset[int]


def choose(want: Want, free: Sequence[int]) -> tuple[int, ...] | None:
    """Return the nodes for a job out of the free ones, or None when they do not do."""
    if want.named:
        return want.named if all(_holds(free, node) for node in want.named) else None
    return tuple(free[: want.nodes]) if want.nodes <= len(free) else None


def shadow(
    want: Want, free: Sequence[int], ends: Iterable[tuple[float, Sequence[int]]]
) -> Shadow | None:
    """
    Return when and where a job will start if every running one uses its whole limit.

    Nodes that become free come before those that are free already, so that as few
    nodes as possible stand empty for it; among equals the lowest.

    Args:
        ends: of the running jobs, earliest first, with the nodes that become free.
    """
    named = frozenset(want.named)
    freed: list[int] = []
    missing = len(named.difference(free)) if named else want.nodes - len(free)
    for at, nodes in ends:
        useful = [node for node in nodes if not named or node in named]
        freed += useful
        missing -= len(useful)
        if missing <= 0:
            if named:
                return Shadow(at, named)
            first = sorted(freed)[: want.nodes]
            return Shadow(at, frozenset(first) | frozenset(free[: want.nodes - len(first)]))
    return None


def backfill(
    now: float,
    waiting: Sequence[Want],
    free: Sequence[int],
    held: Shadow | None,
    fits: Callable[[Want, Sequence[int]], Sequence[int]],
) -> dict[int, tuple[int, ...]]:
    """
    Return which of the waiting jobs may start now without delaying the held one.

    Args:
        fits: thins out the free nodes to those that the job may use.
    """
    chosen: dict[int, tuple[int, ...]] = {}
    left = list(free)
    spare = left if held is None else [node for node in left if node not in held.nodes]
    for position, want in enumerate(waiting):
        if not left:
            break
        if want.nodes > len(left):
            continue
        short = held is None or now + want.limit <= held.at
        nodes = choose(want, fits(want, left if short else spare))
        if nodes is None:
            continue
        chosen[position] = nodes
        taken = set(nodes)
        left = [node for node in left if node not in taken]
        spare = [node for node in spare if node not in taken]
    return chosen


def _holds(ordered: Sequence[int], node: int) -> bool:
    place = bisect_left(ordered, node)
    return place < len(ordered) and ordered[place] == node
