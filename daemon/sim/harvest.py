"""Eyes and hands for the daemon's own controller, on simulated nodes.

A look shows the controller only what a decision can hang on by now: nodes that are wanted,
nodes with room, the jobs there, and as many of those that wait as there can be place for.  The
rest is as it was when the last plan left it alone (a test compares with looks at everything).
"""

import heapq
from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import chain, islice

from daemon.controller import Controller
from daemon.core.actions import Action, Place, Settle, Vacate
from daemon.core.policy import Policy
from daemon.core.types import Claim, ClaimSource, Cluster, JobId, NodeName, Snapshot
from daemon.sim.costs import Costs
from daemon.sim.ground import Taken, Turn, Vacant
from daemon.sim.news import Memory, News, Orders
from daemon.sim.supply import Size, Supply
from daemon.sim.tally import Tally
from daemon.sim.work import Kind, Slot, Work, moment

_NEVER = float("inf")
_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """How the daemon works at the simulated site."""

    policy: Policy = field(default_factory=Policy)
    costs: Costs = field(default_factory=Costs)
    cores_per_node: int = 1
    memory_mib: int = 16384
    #: Seconds between two questions to the batch system, and how often in a row it must call
    #: a node idle.
    poll_seconds: float = 15.0
    idle_looks: int = 1


class Harvester:
    """The daemon's loop under virtual time."""

    def __init__(
        self,
        names: Iterable[NodeName],
        *,
        site: Site,
        supply: Supply,
        begin: float,
        held: dict[NodeName, Slot],
        whole: bool = False,
    ) -> None:
        """
        Take the nodes; those with jobs are entered into ``held``.

        ``whole`` shows everything at each look and remembers nothing, which is slow.
        """
        self.tally = Tally()
        self._site = site
        self._supply = supply
        self._held = held
        self._whole = whole
        self._begin = self._now = begin
        cores, policy = site.cores_per_node, site.policy
        self._kinds = {size: Kind(size, site.costs, policy, cores) for size in supply.sizes}
        self._least = _least(supply.sizes)
        self._slots = {n: Slot.make(n, cores, site.memory_mib, policy) for n in names}
        self._memory = None if whole or not self._is_uniform() else Memory()
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
        self._orders = Orders()
        self._vacant: list[Vacant] = []
        self._file_system_free = begin
        # Periodic checkpoints are counted when a segment ends: nothing else hangs on them, and
        # they would be most of all actions.
        self._controller = Controller(
            eyes=self, hands=self, policy=replace(policy, saves_at_once=0), tell=_say_nothing
        )

    def _is_uniform(self) -> bool:
        """Tell whether every node takes one job, and any."""
        slot = next(iter(self._slots.values()), None)
        sizes = self._supply.sizes
        return slot is not None and all(
            slot.cpus // 2 < size.cpus <= slot.cpus and size.memory_mib <= slot.memory_mib
            for size in sizes
        )

    # What happens

    def due(self) -> float:
        settles = self._settling[0][0] if self._settling else _NEVER
        event = self._events[0][0] if self._events else _NEVER
        if self._leaving and (self._rooms or self._returned):
            # Somebody may go on elsewhere; else it is soon enough at the next event.
            event = min(event, self._leaving[0][0])
        if len(self._queued) < self._supply.backlog:
            return min(settles, event, max(self._supply.due(), self._now))
        return min(settles, event)

    def step(self, now: float, turn: Turn) -> list[Vacant]:
        self._now, self._vacant = now, []
        leaving = self._leaving
        if leaving and leaving[0][0] <= now:
            self._vacate()
        if turn.freed:
            self._free([self._slots[node] for node in turn.freed])
        if turn.taken:
            self._take(turn.taken)
        if self._settling and self._settling[0][0] <= now:
            self._settle()
        while True:
            if self._events and self._events[0][0] <= now:
                self._happen()
            if leaving and leaving[0][0] <= now:
                self._vacate()
            if len(self._queued) < self._supply.backlog:
                self._fetch()
            news = self._news
            if not (news.claimed or news.ended or news.room):
                return self._vacant
            self._tick()

    def close(self, now: float) -> None:
        self._now = now
        for slot in self._held.values():
            if not slot.vacating:
                for work in slot.works:
                    self._count(work, min(now, work.finish))

    def open(self) -> None:
        """Take all nodes to be idle from now on."""
        self._free(list(self._slots.values()))

    def _free(self, slots: list[Slot]) -> None:
        now, poll = self._now, self._site.poll_seconds
        for slot in slots:
            slot.idle = True
            slot.since = now
            slot.settled = False
            if slot.vacating:
                self._returned.add(slot.name)
        polls = -(-(now - self._begin) // poll) + self._site.idle_looks - 1
        self._settling.append((self._begin + polls * poll, now, slots))

    def _take(self, taken: Iterable[Taken]) -> None:
        now, slots, rooms = self._now, self._slots, self._rooms
        for node, job in taken:
            slot = slots[node]
            slot.idle_seconds += now - slot.since
            slot.gaps += 1
            slot.idle = False
            slot.since = now
            if node in rooms:
                del rooms[node]
            if not slot.works:
                continue
            if slot.vacating:
                self._returned.discard(node)
                over = next(at for at, _, leaving in self._leaving if slot in leaving)
                self._vacant.append((node, job, over))
                continue
            slot.wanted.append(job)
            if slot.ready > now:
                # An order that is under way is waited for.
                self._push(slot.ready, [slot])
            else:
                self._news.claimed.append(slot)

    def _settle(self) -> None:
        settling = self._settling
        while settling and settling[0][0] <= self._now:
            _, since, slots = settling.popleft()
            for slot in slots:
                if slot.idle and slot.since == since:
                    slot.settled = True
                    self._offer(slot)

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
        hour = work.finish // _HOUR * _HOUR
        if hour <= self._now:
            self._push(work.finish, work)
        elif hour in self._later:
            self._later[hour].append(work)
        else:
            self._later[hour] = [work]
            self._push(hour, None)

    def _happen(self) -> None:
        """Let everything happen that is due."""
        events, now = self._events, self._now
        while events and events[0][0] <= now:
            at, _, what = heapq.heappop(events)
            if what is None:
                # One that was moved meanwhile may be there twice.
                for work in dict.fromkeys(self._later.pop(at)):
                    if work.slot is not None and work.finish < at + _HOUR:
                        self._push(work.finish, work)
            elif isinstance(what, Work):
                # One that was evicted or ended meanwhile has no or another finish.
                if what.slot is not None and what.finish == at and not what.slot.vacating:
                    self._news.ended.append(what)
            else:
                self._claim_late(what)

    def _claim_late(self, slots: list[Slot]) -> None:
        """Have nodes vacated that were claimed while an order to them was under way."""
        for slot in slots:
            if slot.idle:
                # In a record nobody waits: the claim is over.
                self._give_back(slot, held=bool(slot.works))
            elif slot.works and slot not in self._news.claimed:
                self._news.claimed.append(slot)

    def _fetch(self) -> None:
        most = self._supply.backlog - len(self._queued)
        for order in self._supply.fetch(self._now, most):
            self._last_number += 1
            kind = self._kinds[order.size]
            work = Work(self._last_number, kind, order.submit, order.seconds)
            self._works[work.number] = work
            self._queued.append(work)
            self._news.room = self._news.room or bool(self._rooms)

    def _tick(self) -> None:
        """Have decided what is to be done by now, and begin it."""
        memory, news, rooms = self._memory, self._news, self._rooms
        orders = None
        empty = [rooms[name] for name in sorted(rooms)] if rooms else []
        if memory is not None:
            orders = memory.recall(news, empty, self._line())
        if orders is None:
            self._orders = orders = Orders()
            self._controller.tick()
            if memory is not None:
                memory.check(news, empty, list(islice(self._line(), len(empty))), orders)
        news.claimed, news.ended, news.room = [], [], False
        for work in orders.end:
            self._end(work)
        if orders.evict:
            self._evict(orders.evict)
        if orders.place:
            self._place(orders.place)

    def _line(self) -> Iterable[Work]:
        """Return who waits, in the order in which they are served."""
        return chain((work for _, work in self._parked), self._queued)

    # As eyes

    def look(self) -> Snapshot:
        """Show what the next plan can hang on."""
        news, rooms = self._news, self._rooms
        slots = dict(self._slots if self._whole else rooms)
        slots |= {slot.name: slot for slot in news.claimed}
        slots |= {work.slot.name: work.slot for work in news.ended if work.slot is not None}
        here = [work for slot in slots.values() for work in slot.works]
        poll = self._site.poll_seconds
        asked = self._begin + (self._now - self._begin) // poll * poll
        claimed = news.claimed
        if self._whole:
            claimed = [s for s in slots.values() if not s.idle and s.ready <= self._now]
        return Snapshot(
            now=moment(self._now),
            cluster=Cluster(nodes={n: s.node for n, s in slots.items()}, taken=moment(asked)),
            settled=frozenset(rooms),
            engines={name: slot.view(news.ended) for name, slot in slots.items()},
            jobs=tuple(work.job() for work in chain(here, self._shown())),
            claims=tuple(
                Claim(node=slot.name, source=ClaimSource.PROLOG, at=moment(self._now))
                for slot in claimed
            ),
            gaps={name: slot.history() for name, slot in slots.items()},
            busy_nodes=frozenset(name for name, slot in slots.items() if slot.vacating),
            busy_jobs=frozenset(
                JobId(work.number)
                for work in here
                if work.ready > self._now or (work.slot is not None and work.slot.vacating)
            ),
        )

    def _shown(self) -> Iterable[Work]:
        """Return as many waiting jobs of each size, in their order, as could be placed at most."""
        most = sum(slot.room(self._least) for slot in self._rooms.values())
        if self._whole or not most:
            return self._line() if self._whole else ()
        if self._memory is not None:
            return islice(self._line(), most)
        seen: Counter[Size] = Counter()
        found = []
        for work in self._line():
            seen[work.kind.size] += 1
            if seen[work.kind.size] <= most:
                found.append(work)
        return found

    # As hands

    def perform(self, action: Action) -> None:
        """Take an order of the controller's; it is carried out with all of the tick."""
        match action:
            case Place():
                self._orders.place.append((self._works[action.job], self._slots[action.node]))
            case Vacate():
                left = (action.deadline - moment(self._now)).total_seconds()
                self._orders.evict.append((self._slots[action.node], left))
            case Settle():
                self._orders.end.append(self._works[action.ref.job])
            case _:
                raise AssertionError(f"the simulator has no hands for {action}")

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
            if name in rooms and (self._memory is not None or not slot.room(self._least)):
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
        self.tally.overhead += kind.share * (wall - done)
        return done


def _say_nothing(_action: Action) -> None:
    """Log nothing: there are millions."""


def _least(sizes: Iterable[Size]) -> Size:
    cpus, memory = zip(*((size.cpus, size.memory_mib) for size in sizes), strict=True)
    return Size(min(cpus), min(memory))
