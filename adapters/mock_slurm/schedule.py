"""Which waiting priority job gets which nodes: first come first served, EASY backfill.

Pure functions of numbers.  Nodes are given by their position, free ones in rising
order, so that the same input gives the same choice.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
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
    #: Free nodes that are kept for it, in rising order, and those that become free.
    kept: tuple[int, ...]
    freed: tuple[int, ...]

    @property
    def nodes(self) -> frozenset[int]:
        return frozenset(self.kept + self.freed)


def choose(want: Want, free: Sequence[int]) -> tuple[int, ...] | None:
    """Return the nodes for a job out of the free ones, or None when they do not do."""
    if want.named:
        return want.named if set(want.named) <= set(free) else None
    return tuple(free[: want.nodes]) if want.nodes <= len(free) else None


def shadow(
    want: Want, free: Sequence[int], ends: Iterable[tuple[float, Collection[int]]]
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
    found: float | None = None
    for at, nodes in ends:
        if found is not None and at > found:
            break
        useful = [node for node in nodes if node in named] if named else nodes
        freed += useful
        missing -= len(useful)
        if missing <= 0:
            found = at
    if found is None:
        return None
    if named:
        return Shadow(found, tuple(node for node in free if node in named), tuple(freed))
    if len(freed) > want.nodes:
        freed = sorted(freed)[: want.nodes]
    return Shadow(found, tuple(free[: want.nodes - len(freed)]), tuple(freed))


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
    # Nodes that are kept for the held job come first: whoever is gone in time takes
    # those, and leaves the others to jobs that are not.
    kept = [] if held is None else list(held.kept)
    left = len(free) - len(kept)
    if held is not None and not any(
        now + want.limit <= held.at or want.nodes <= left for want in waiting
    ):
        return chosen
    # Nearly always those that are kept are the first.
    first = list(free[: len(kept)]) == kept
    spare = list(free[len(kept) :]) if first else [node for node in free if node not in kept]
    for position, want in enumerate(waiting):
        room = len(kept) + len(spare)
        if want.nodes > room:
            if not room:
                break
            continue
        short = held is None or now + want.limit <= held.at
        if not short and want.nodes > len(spare):
            continue
        nodes = choose(want, fits(want, kept + spare if short else spare))
        if nodes is None:
            continue
        chosen[position] = nodes
        taken = set(nodes)
        kept = [node for node in kept if node not in taken]
        spare = [node for node in spare if node not in taken]
    return chosen
