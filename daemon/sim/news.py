"""What happened since the last look, what is to be done about it, and what was done before."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from daemon.core.forecast import mean_gap, suited
from daemon.sim.work import Kind, Slot, Work


@dataclass(slots=True)
class News:
    """What the next look is about."""

    claimed: list[Slot] = field(default_factory=list)
    ended: list[Work] = field(default_factory=list)
    #: Something can be placed that could not be.
    room: bool = False

    def __bool__(self) -> bool:
        return self.room or bool(self.claimed) or bool(self.ended)


@dataclass(slots=True)
class Orders:
    """What the controller wants done, in its order; seconds are until the deadline."""

    end: list[Work] = field(default_factory=list)
    evict: list[tuple[Slot, float]] = field(default_factory=list)
    place: list[tuple[Work, Slot]] = field(default_factory=list)

    def sorted(self) -> tuple[list[int], list[tuple[str, float]], list[tuple[int, str]]]:
        """Return them so that two can be compared: all of a tick begin at the same moment."""
        return (
            sorted(work.number for work in self.end),
            sorted((slot.name, left) for slot, left in self.evict),
            sorted((work.number, slot.name) for work, slot in self.place),
        )


#: Between two looks at which what is remembered is compared with what is decided.
_CHECK_EVERY = 200


class Memory:
    """
    Answers a question like one that the controller answered before.

    It is for nodes that take one job each, any job: then a claimed node, a job that ended, and
    the next job beside the next empty node are questions by themselves, and all that can differ
    in them is the kind of the job.  That this holds is not taken for granted: everything is
    asked at first, and now and then later; at the first answer that differs from what is
    remembered, nothing is remembered any more.
    """

    def __init__(self) -> None:
        self._evict: dict[Kind, float] = {}
        self._end: set[Kind] = set()
        #: New jobs, and those that go on.
        self._place: tuple[set[Kind], set[Kind]] = (set(), set())
        self._until_check = _CHECK_EVERY
        self.trusted = True

    def recall(self, news: News, rooms: Sequence[Slot], waiting: Iterable[Work]) -> Orders | None:
        """Return what was done about the like; None when that is not known, or to be checked."""
        self._until_check -= 1
        if self._until_check <= 0 or not self.trusted:
            self._until_check = _CHECK_EVERY
            return None
        return self._orders(news, rooms, waiting)

    def check(
        self, news: News, rooms: Sequence[Slot], waiting: Sequence[Work], got: Orders
    ) -> None:
        """Compare the controller's orders with what would have been recalled, and learn them."""
        expected = self._orders(news, rooms, waiting)
        if expected is not None:
            self.trusted = self.trusted and expected.sorted() == got.sorted()
            return
        self._evict.update((slot.works[0].kind, left) for slot, left in got.evict if slot.works)
        self._end.update(work.kind for work in got.end)
        for work, _ in got.place:
            self._place[work.generation > 0].add(work.kind)

    def _orders(self, news: News, rooms: Sequence[Slot], waiting: Iterable[Work]) -> Orders | None:
        if news.claimed and news.ended:
            # A job may have ended on the very node that is claimed.
            return None
        evict, place, end = self._evict, self._place, self._end
        try:
            orders = Orders(evict=[(slot, evict[slot.works[0].kind]) for slot in news.claimed])
        except KeyError:
            return None
        if rooms:
            orders.place = placed = _paired(waiting, rooms)
            for work, _ in placed:
                if work.kind not in place[work.generation > 0]:
                    return None
        for work in news.ended:
            if work.kind not in end:
                return None
        orders.end = news.ended
        return orders


def _paired(waiting: Iterable[Work], rooms: Sequence[Slot]) -> list[tuple[Work, Slot]]:
    placed = list(islice(waiting, len(rooms)))
    if len(placed) == 1:
        return [(placed[0], rooms[0])]
    nodes = suited(
        [work.kind.eviction_cost for work in placed],
        [mean_gap(slot.idle_seconds, slot.gaps) for slot in rooms[: len(placed)]],
    )
    return [(work, rooms[node]) for work, node in zip(placed, nodes, strict=True)]
