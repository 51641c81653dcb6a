"""Eyes and hands for the daemon's own controller, on simulated nodes.

A look shows the controller only what a decision can hang on by now: nodes that are wanted,
nodes with room, the jobs there, and as many of those that wait as there can be place for.  The
rest is as it was when the last plan left it alone (a test compares with looks at everything).
"""

import heapq
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain, islice

from daemon.controller import Controller
from daemon.core.actions import Action, Place, Settle, Vacate
from daemon.core.types import NodeName, Snapshot
from daemon.sim.fleet import HOUR, Fleet
from daemon.sim.ground import Taken, Turn, Vacant
from daemon.sim.look import few_of_each, picture
from daemon.sim.news import Memory, Orders
from daemon.sim.site import Site
from daemon.sim.supply import Supply
from daemon.sim.work import Slot, Work, moment

_NEVER = float("inf")


class Harvester(Fleet):
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
        super().__init__(names, site=site, supply=supply, begin=begin, held=held)
        self._whole = whole
        self._memory = Memory() if self._uniform and not whole else None
        self._orders = Orders()
        # Periodic checkpoints are counted when a segment ends: nothing else hangs on them, and
        # they would be most of all actions.
        self._controller = Controller(
            eyes=self, hands=self, policy=replace(site.policy, saves_at_once=0), tell=_say_nothing
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

    def _happen(self) -> None:
        """Let everything happen that is due."""
        events, now = self._events, self._now
        while events and events[0][0] <= now:
            at, _, what = heapq.heappop(events)
            if what is None:
                # One that was moved meanwhile may be there twice.
                for work in dict.fromkeys(self._later.pop(at)):
                    if work.slot is not None and work.finish < at + HOUR:
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
        poll = self._site.poll_seconds
        asked = self._begin + (self._now - self._begin) // poll * poll
        claimed = news.claimed
        if self._whole:
            claimed = [s for s in slots.values() if not s.idle and s.ready <= self._now]
        return picture(
            now=self._now,
            asked=asked,
            slots=slots,
            settled=rooms,
            claimed=claimed,
            ended=news.ended,
            waiting=self._shown(),
        )

    def _shown(self) -> Iterable[Work]:
        """Return as many waiting jobs of each size, in their order, as could be placed at most."""
        if self._whole:
            return self._line()
        most = sum(slot.room(self._least) for slot in self._rooms.values())
        if self._memory is not None or not most:
            return islice(self._line(), most)
        return few_of_each(self._line(), most)

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


def _say_nothing(_action: Action) -> None:
    """Log nothing: there are millions."""
