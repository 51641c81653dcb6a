"""One simulation from begin to end."""

import gc
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

from daemon.core.types import NodeName
from daemon.sim.ground import Ground, Started, Turn
from daemon.sim.tally import Filler, Tally

#: Called now and then with how many priority jobs' nodes have changed hands.
Progress = Callable[[float], None]
_STEPS = 5000
_NEVER = float("inf")


@dataclass(slots=True)
class Gaps:
    """When each node was last freed, and how long all its gaps were."""

    since: dict[NodeName, float]
    lengths: "array[float]" = field(default_factory=lambda: array("d"))

    def note(self, now: float, turn: Turn) -> None:
        """Take down what happened to nodes."""
        since, lengths = self.since, self.lengths
        for node in turn.freed:
            since[node] = now
        for node, _ in turn.taken:
            began = since.pop(node)
            if now > began:
                lengths.append(now - began)

    def close(self, now: float) -> None:
        """End what is still idle."""
        self.lengths.extend(now - began for began in self.since.values() if now > began)
        self.since.clear()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was seen."""

    begin: float
    end: float
    nodes: int
    started: tuple[Started, ...]
    gaps: "array[float]"
    tally: Tally


def play(
    ground: Ground, filler: Filler | None, *, all_idle: bool, progress: Progress | None = None
) -> Outcome:
    """
    Let time pass until the last priority job has ended.

    Args:
        all_idle: nodes are idle from the begin on; else gaps say when.
    """
    # Nothing that is made on the way goes in circles, and looking for some is a tenth of the time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _play(ground, filler, all_idle=all_idle, progress=progress)
    finally:
        if collecting:
            gc.enable()


def _play(
    ground: Ground, filler: Filler | None, *, all_idle: bool, progress: Progress | None
) -> Outcome:
    gaps = Gaps(dict.fromkeys(ground.names, ground.begin) if all_idle else {})
    now, steps, nothing = ground.begin, 0, Turn()
    while True:
        event = ground.next_event()
        if event is None and not ground.waiting:
            break
        own = filler.due() if filler is not None else _NEVER
        if event is None or own < event:
            now, turn = own, nothing
        else:
            now, turn = event, ground.advance_to(event)
            gaps.note(now, turn)
        if filler is not None:
            vacant = filler.step(now, turn)
            if vacant:
                ground.vacated(now, vacant)
        steps += 1
        if progress is not None and not steps % _STEPS:
            progress(now)
    gaps.close(now)
    if filler is not None:
        filler.close(now)
    return Outcome(
        begin=ground.begin,
        end=now,
        nodes=len(ground.names),
        started=tuple(ground.started()),
        gaps=gaps.lengths,
        tally=filler.tally if filler is not None else Tally(),
    )
