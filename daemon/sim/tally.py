"""What the filler did, counted in node-seconds."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Protocol

from daemon.sim.ground import Turn, Vacant


@dataclass(slots=True)
class Tally:
    """Sums over all nodes; a job of half a node's cores counts half."""

    harvested: float = 0.0
    #: Starts, resumes and checkpoints, also those after a claim, when the node is idle no more.
    overhead: float = 0.0
    #: Work that has to be done again.
    lost: float = 0.0
    evictions: int = 0
    migrations: int = 0
    kills: int = 0
    completed: int = 0
    placements: int = 0
    #: What was harvested for each, where there are several.
    by_user: dict[int, float] = field(default_factory=lambda: defaultdict(float))


class Filler(Protocol):
    """Whatever runs jobs on idle nodes."""

    tally: Tally

    def due(self) -> float:
        """Return when it does something next if nobody disturbs it; infinity is never."""

    def step(self, now: float, turn: Turn) -> list[Vacant]:
        """Do what is due, and tell of wanted nodes when they are vacant, once that is certain."""

    def close(self, now: float) -> None:
        """Count what is still under way."""
