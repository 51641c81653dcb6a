"""Simulated nodes with low-priority jobs, and what can be done with them.

Nothing is decided here.  What is counted is counted here.
"""

import heapq
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable

from daemon.core.types import NodeName
from daemon.sim.ground import Vacant
from daemon.sim.news import News
from daemon.sim.site import Site
from daemon.sim.supply import Size, Supply
from daemon.sim.tally import Tally
from daemon.sim.work import Kind, Slot, Work

HOUR = 3600.0


class Fleet:
    """Nodes, jobs, and when things will happen to them."""

    def __init__(
        self,
        names: Iterable[NodeName],
        *,
        site: Site,
        supply: Supply,
        begin: float,
        held: dict[NodeName, Slot],
    ) -> None:
        """Take the nodes; those with jobs are entered into ``held``."""
        self.tally = Tally()
        self._site = site
        self._supply = supply
        self._held = held
        self._begin = self._now = begin
        cores, policy = site.cores_per_node, site.policy
        self._kinds = {size: Kind(size, site.costs, policy, cores) for size in supply.sizes}
        self._least = _least(supply.sizes)
        self._many_users = len({size.uid for size in supply.sizes}) > 1
        self._slots = {n: Slot.make(n, cores, site.memory_mib, policy) for n in names}
        #: Every node takes one job, and any.
        self._uniform = self._is_uniform()
        #: Nodes that were seen idle often enough, with room for the smallest job.
        self._rooms: dict[NodeName, Slot] = {}
        #: Nodes that will be, with when, and since when: void if they were taken meanwhile.
        self._settling: deque[tuple[float, float, list[Slot]]] = deque()
        self._events: list[tuple[float, int, Work | list[Slot] | None]] = []
        #: Nodes that are idle again while their jobs are still being saved.
        self._returned: set[NodeName] = set()
        self._serial = 0
        #: Jobs that end in a later hour, if nothing happens to them: most will be evicted.
        self._later: dict[float, list[Work]] = {}
        #: Nodes whose jobs are being saved, and when that is over.
        self._leaving: list[tuple[float, int, list[Slot]]] = []
        self._parked: list[tuple[int, Work]] = []
        self._queued: deque[Work] = deque()
        self._works: dict[int, Work] = {}
        self._last_number = 0
        self._news = News()
        self._vacant: list[Vacant] = []
        self._file_system_free = begin

    def _is_uniform(self) -> bool:
        """Tell whether every node takes one job, and any."""
        slot = next(iter(self._slots.values()), None)
        sizes = self._supply.sizes
        return slot is not None and all(
            slot.cpus // 2 < size.cpus <= slot.cpus and size.memory_mib <= slot.memory_mib
            for size in sizes
        )

    def _offer(self, slot: Slot) -> None:
        if not slot.settled or not slot.idle or slot.vacating:
            return
        if not slot.works or slot.room(self._least):
            self._rooms[slot.name] = slot
            self._news.room = True

    def _push(self, at: float, what: Work | list[Slot] | None) -> None:
        self._serial += 1
        heapq.heappush(self._events, (at, self._serial, what))

    def _push_end(self, work: Work) -> None:
        """Note when a job ends, unless that is so far off that it hardly matters."""
        hour = work.finish // HOUR * HOUR
        if hour <= self._now:
            self._push(work.finish, work)
        elif hour in self._later:
            self._later[hour].append(work)
        else:
            self._later[hour] = [work]
            self._push(hour, None)

    def _place(self, placed: list[tuple[Work, Slot]]) -> None:
        """Start or resume jobs.  One loop without calls: this is where the time goes."""
        tally, now, rooms, held, parked = (
            self.tally,
            self._now,
            self._rooms,
            self._held,
            self._parked,
        )
        for work, slot in placed:
            kind, name = work.kind, slot.name
            if work.generation:
                lasts = kind.resume
                tally.migrations += work.last != name
                first = parked[0][1] is work
                del parked[0 if first else bisect_left(parked, (work.number,))]
            else:
                lasts = kind.start
                self._queued.remove(work)
            tally.overhead += kind.share * lasts
            work.slot = slot
            work.epoch += 1
            work.ready = ready = now + lasts
            work.finish = ready + kind.wall(work.left, first=not work.generation)
            slot.works.append(work)
            slot.ready = max(slot.ready, ready)
            slot.written_mib += kind.size.memory_mib
            held[name] = slot
            self._push_end(work)
            if name in rooms and (self._uniform or not slot.room(self._least)):
                del rooms[name]
        tally.placements += len(placed)

    def _end(self, work: Work) -> None:
        slot = work.slot
        if slot is None:
            return
        self._count(work, work.finish)
        self.tally.completed += 1
        slot.works.remove(work)
        slot.written_mib -= work.kind.size.memory_mib
        work.slot = None
        del self._works[work.number]
        if not slot.works:
            self._give_back(slot)
        self._offer(slot)

    def _evict(self, evicted: list[tuple[Slot, float]]) -> None:
        """Begin all evictions of one tick: they share the file system."""
        costs, now = self._site.costs, self._now
        mibs = [slot.written_mib for slot, _ in evicted]
        backlog = max(0.0, self._file_system_free - now)
        lasts = costs.evictions(mibs, backlog)
        self._file_system_free = now + backlog + costs.backlog(mibs)
        together: dict[float, list[Slot]] = {}
        vacant = self._vacant
        for (slot, left), seconds in zip(evicted, lasts, strict=True):
            slot.vacating = True
            saved = seconds <= left
            took = seconds if saved else max(left, 0.0)
            vacant += [(slot.name, job, now + took) for job in slot.wanted]
            slot.wanted.clear()
            # They stand still from now on, or since the hook froze them.
            stopped = now if slot.idle else slot.since
            for work in slot.works:
                self._freeze(work, stopped, saved=saved)
                self.tally.overhead += took * work.kind.share
            if took in together:
                together[took].append(slot)
            else:
                together[took] = [slot]
        for took, slots in together.items():
            self._serial += 1
            heapq.heappush(self._leaving, (now + took, self._serial, slots))

    def _freeze(self, work: Work, stopped: float, *, saved: bool) -> None:
        done = self._count(work, stopped)
        work.left -= done
        work.saved = saved
        if saved:
            self.tally.evictions += 1
            return
        share = work.kind.share
        lost = work.kind.unsaved(done, first=not work.generation)
        self.tally.kills += 1
        self.tally.harvested -= share * lost
        self.tally.lost += share * lost
        self.tally.by_user[work.kind.size.uid] -= share * lost * self._many_users
        work.left += lost

    def _vacate(self) -> None:
        """Have the jobs wait that were saved until now."""
        leaving, parked, held = self._leaving, self._parked, self._held
        while leaving and leaving[0][0] <= self._now:
            for slot in heapq.heappop(leaving)[2]:
                name = slot.name
                for work in slot.works:
                    work.slot, work.last = None, name
                    work.generation += work.saved
                    if work.generation:
                        insort(parked, (work.number, work))
                    else:
                        self._queued.appendleft(work)
                slot.works.clear()
                slot.written_mib = 0
                slot.vacating = False
                del held[name]
                if slot.idle:
                    self._returned.discard(name)
                    self._offer(slot)
        if self._rooms:
            self._news.room = True

    def _give_back(self, slot: Slot, *, held: bool = False) -> None:
        """Let priority jobs have a node, which has no jobs, or of which nobody knows better."""
        if not held:
            self._held.pop(slot.name, None)
        self._vacant += [(slot.name, job, self._now) for job in slot.wanted]
        slot.wanted.clear()

    def _count(self, work: Work, until: float) -> float:
        """Count what a segment did until then, and return it."""
        kind = work.kind
        wall = until - work.ready
        if wall <= 0:
            return 0.0
        done = min(kind.work(wall, first=not work.generation), work.left)
        self.tally.harvested += kind.share * done
        if self._many_users:
            self.tally.by_user[kind.size.uid] += kind.share * done
        self.tally.overhead += kind.share * (wall - done)
        return done


def _least(sizes: Iterable[Size]) -> Size:
    cpus, memory = zip(*((size.cpus, size.memory_mib) for size in sizes), strict=True)
    return Size(min(cpus), min(memory))
