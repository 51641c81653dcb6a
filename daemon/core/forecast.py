"""How long a gap is going to be, as far as the past of its node tells."""

from collections.abc import Sequence

from daemon.core.types import GapHistory

#: What is expected of a node of which nothing is known, with the weight of one gap.
_USUAL_SECONDS = 3600.0


def expected_gap(history: GapHistory | None) -> float:
    """Return for how many seconds the node is likely to be left idle."""
    return _USUAL_SECONDS if history is None else mean_gap(history.idle_seconds, history.ended)


def mean_gap(idle_seconds: float, ended: int) -> float:
    """Return the mean length of so many gaps, and of a usual one."""
    return (idle_seconds + _USUAL_SECONDS) / (ended + 1)


def suited(costs: Sequence[float], gaps: Sequence[float]) -> list[int]:
    """
    Return which of as many equal nodes each job gets, by their positions.

    The dearer a job is to evict, the longer the gap that it gets: then fewer dear evictions are
    made, and priority jobs wait less.  Among equals the order given decides.
    """
    found = [0] * len(costs)
    by_gap = sorted(range(len(gaps)), key=gaps.__getitem__)
    for job, node in zip(sorted(range(len(costs)), key=costs.__getitem__), by_gap, strict=True):
        found[job] = node
    return found
