"""What a simulation comes to: figures, and the starts of all priority jobs."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from daemon.sim.costs import Costs
from daemon.sim.run import Outcome


def figures(
    outcome: Outcome, *, costs: Costs, smallest_mib: int, cores_per_node: int
) -> dict[str, Any]:
    """
    Return all figures, by the names that ``--json`` has.

    The unavoidable cost of a gap is a start, or a resume of the smallest job where that is less:
    whoever knew everything beforehand would have to pay that much.
    """
    started, tally, gaps = outcome.started, outcome.tally, outcome.gaps
    waits = [job.first - job.submit for job in started]
    idle = sum(gaps)
    unavoidable = min(costs.start_seconds, costs.resume(smallest_mib))
    achievable = sum(gap - unavoidable for gap in gaps if gap > unavoidable)
    processors = outcome.nodes * cores_per_node
    worked = sum(job.processors * (job.ended - job.first) for job in started)
    span = outcome.end - outcome.begin
    return {
        "jobs": len(started),
        "mean_wait_seconds": _mean(waits),
        "max_wait_seconds": max(waits, default=0.0),
        "utilization": worked / (processors * span) if span else 0.0,
        "idle_node_seconds": idle,
        "harvested_node_seconds": tally.harvested,
        "overhead_node_seconds": tally.overhead,
        "lost_node_seconds": tally.lost,
        "achievable_node_seconds": achievable,
        "achievable_share": tally.harvested / achievable if achievable else 0.0,
        "idle_share": tally.harvested / idle if idle else 0.0,
        "gaps": len(gaps),
        "evictions": tally.evictions,
        "migrations": tally.migrations,
        "kills": tally.kills,
        "placements": tally.placements,
        "completed": tally.completed,
        "priority_delay_seconds": spread([job.first - job.began for job in started]),
        "harvested_by_user": {str(uid): tally.by_user[uid] for uid in sorted(tally.by_user)},
        "fairness": fairness(list(tally.by_user.values())),
        "nodes": outcome.nodes,
        "span_seconds": span,
    }


def spread(values: Iterable[float]) -> dict[str, float]:
    """Return mean, 99th percentile (nearest rank) and maximum."""
    found = sorted(values)
    if not found:
        return {"mean": 0.0, "p99": 0.0, "max": 0.0}
    rank = max(0, -(-len(found) * 99 // 100) - 1)
    return {"mean": _mean(found), "p99": found[rank], "max": found[-1]}


def fairness(shares: Sequence[float]) -> float:
    """Return Jain's index: 1 when all have the same, 1/n when one of n has everything."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def write_starts(path: Path, outcome: Outcome) -> None:
    """
    Write a line of CSV for every priority job: when its first instruction ran, and when it ended.

    Raises:
        OSError: it cannot be written.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(("id", "submit", "start", "end", "delay"))
        for job in outcome.started:
            moments = (job.submit, job.first, job.ended, job.first - job.began)
            out.writerow((job.id, *(_plain(moment) for moment in moments)))


def _plain(seconds: float) -> str:
    """Write whole seconds as such, others to the millisecond."""
    return str(int(seconds)) if seconds == int(seconds) else f"{seconds:.3f}"


_HOUR = 3600.0


def rows(found: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield a table: a line for each figure, a column for each policy."""
    for label, write in _ROWS:
        yield (label, *(write(each) for each in found.values()))


def _hours(key: str) -> Any:
    return lambda each: f"{each[key] / _HOUR:,.1f}"


def _share(key: str) -> Any:
    return lambda each: f"{each[key]:.2%}"


def _count(key: str) -> Any:
    return lambda each: f"{each[key]:,}"


def _delay(key: str) -> Any:
    return lambda each: f"{each['priority_delay_seconds'][key]:.3f}"


def _seconds(key: str) -> Any:
    return lambda each: f"{each[key]:,.1f}"


_ROWS = (
    ("priority jobs", _count("jobs")),
    ("mean wait, s", _seconds("mean_wait_seconds")),
    ("utilization by priority jobs", _share("utilization")),
    ("idle, node-hours", _hours("idle_node_seconds")),
    ("harvested, node-hours", _hours("harvested_node_seconds")),
    ("  of what is idle", _share("idle_share")),
    ("  of what is achievable", _share("achievable_share")),
    ("overhead, node-hours", _hours("overhead_node_seconds")),
    ("lost, node-hours", _hours("lost_node_seconds")),
    ("evictions", _count("evictions")),
    ("migrations", _count("migrations")),
    ("killed", _count("kills")),
    ("delay of priority jobs, mean, s", _delay("mean")),
    ("  99th percentile, s", _delay("p99")),
    ("  longest, s", _delay("max")),
    ("CPU time of the simulation, s", _seconds("cpu_seconds")),
)
