"""What moving jobs costs in time: fixed parts, and bytes over bandwidths.

The defaults were measured with the shim on the development machines (DESIGN: 64 MiB are saved in
0.2 s and 2 GiB in 2.7 s, and resumed in as much).  ``stopgap simulate --costs FILE`` takes those
of a site.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Self


class CostsError(Exception):
    """Costs cannot be used; the text says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Seconds, and MiB per second.  Zero bandwidth is no limit."""

    start_seconds: float = 0.4
    checkpoint_seconds: float = 0.12
    resume_seconds: float = 0.22
    #: Between a node and the file system.
    checkpoint_mib_per_second: float = 790.0
    resume_mib_per_second: float = 820.0
    #: What the file system takes from all nodes together.
    shared_mib_per_second: float = 10240.0

    @classmethod
    def free(cls) -> Self:
        """Return the costs of moves that take no time."""
        return cls(
            start_seconds=0,
            checkpoint_seconds=0,
            resume_seconds=0,
            checkpoint_mib_per_second=0,
            resume_mib_per_second=0,
            shared_mib_per_second=0,
        )

    def checkpoint(self, mib: float) -> float:
        """Return how long a job stands still until it is saved, alone on the file system."""
        return self.checkpoint_seconds + _over(mib, self.checkpoint_mib_per_second)

    def resume(self, mib: float) -> float:
        """Return how long it takes from the order to the first instruction."""
        return self.resume_seconds + _over(mib, self.resume_mib_per_second)

    def evictions(self, mibs: Sequence[float], backlog: float) -> list[float]:
        """
        Return how long nodes take that begin to save at the same moment.

        Each gets an equal part of the file system until it has written all; what others write
        is of concern only where that part is less than its own bandwidth.

        Args:
            mibs: what each node has to write.
            backlog: seconds for which the file system is taken by earlier ones.
        """
        alone, shared = self.checkpoint_mib_per_second, self.shared_mib_per_second
        if not shared or (not backlog and 0 < len(mibs) * alone <= shared):
            # Nobody notices the others.
            return [self.checkpoint(mib) for mib in mibs]
        moved, left, found = 0.0, len(mibs), dict.fromkeys(mibs, 0.0)
        for mib in sorted(mibs):
            # All before it have written everything, all after it as much as this one.
            together = backlog + _over(moved + mib * left, shared)
            found[mib] = self.checkpoint_seconds + max(_over(mib, alone), together)
            moved += mib
            left -= 1
        return [found[mib] for mib in mibs]

    def backlog(self, mibs: Sequence[float]) -> float:
        """Return how long the file system is taken by writing all that."""
        return _over(sum(mibs), self.shared_mib_per_second)


def _over(mib: float, rate: float) -> float:
    return mib / rate if rate else 0.0


def load(path: Path) -> Costs:
    """
    Return the costs in a JSON file.

    It holds the fields of ``Costs``, or what ``make bench`` prints: then the fixed parts and
    bandwidths are those of the line through the smallest and the largest job measured.

    Raises:
        CostsError: the file cannot be read, or says something else.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise CostsError(f"{path} cannot be used: {exc}") from exc
    known = {field.name for field in fields(Costs)}
    if isinstance(found, dict) and "moves" in found:
        return _measured(path, found["moves"])
    if not isinstance(found, dict) or not set(found) <= known:
        raise CostsError(f"{path} is no object with keys of: {', '.join(sorted(known))}")
    if not all(isinstance(value, int | float) and value >= 0 for value in found.values()):
        raise CostsError(f"{path}: every cost is a number, zero or more")
    return Costs(**found)


def _measured(path: Path, moves: object) -> Costs:
    try:
        rows = [
            (float(r["mib"]), float(r["median"]["checkpoint"]), float(r["median"]["resume"]))
            for r in moves  # type: ignore[attr-defined]  # anything else ends below
        ]
        low, high = min(rows), max(rows)
        save, fixed_save = _line((low[0], low[1]), (high[0], high[1]))
        resume, fixed_resume = _line((low[0], low[2]), (high[0], high[2]))
    except (TypeError, KeyError, ValueError, ZeroDivisionError) as exc:
        raise CostsError(
            f"{path} has no moves of jobs of two sizes ({exc!r}); make bench measures them"
        ) from exc
    return replace(
        Costs(),
        checkpoint_seconds=fixed_save,
        checkpoint_mib_per_second=save,
        resume_seconds=fixed_resume,
        resume_mib_per_second=resume,
    )


def _line(low: tuple[float, float], high: tuple[float, float]) -> tuple[float, float]:
    """Return the rate and the fixed part of the line through two points."""
    slope = max((high[1] - low[1]) / (high[0] - low[0]), 1e-9)
    return 1 / slope, max(0.0, low[1] - low[0] * slope)
