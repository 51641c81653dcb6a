"""Simpler ways to use idle nodes, to compare with.

One job takes a whole node in all of them.  None of them knows more than the daemon does.
"""

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from daemon.core.types import NodeName
from daemon.sim.ground import Turn, Vacant
from daemon.sim.site import Site
from daemon.sim.supply import Order, Supply
from daemon.sim.tally import Tally

_NEVER = float("inf")


class Scheme(StrEnum):
    """What is done with idle nodes."""

    #: Nothing.
    NONE = "none"
    #: A batch system's preemption: killed when wanted, run again from the beginning.
    REQUEUE = "requeue"
    #: Pilots of a fixed length (HPC-Whisk), with work that fits one and is not saved.
    PILOTS = "pilots"
    #: Checkpointed when wanted, first come first served (arXiv 1909.00394).
    PAPER = "paper"
    #: The daemon's own controller.
    STOPGAP = "stopgap"


@dataclass(slots=True, eq=False)
class _Task:
    """A job, or the work of one pilot."""

    number: int
    order: Order
    left: float
    #: It has a checkpoint.
    saved: bool = False
    node: NodeName | None = None
    ready: float = 0.0
    finish: float = _NEVER
    last: NodeName | None = None


class Rival:
    """Fills nodes as one of the simpler schemes does."""

    def __init__(
        self,
        names: Iterable[NodeName],
        *,
        scheme: Scheme,
        site: Site,
        supply: Supply,
        begin: float,
        held: dict[NodeName, object],
        pilot_seconds: float = 1800.0,
    ) -> None:
        """Take the nodes; those with jobs are entered into ``held``."""
        self.tally = Tally()
        self._scheme, self._site, self._supply = scheme, site, supply
        self._names = tuple(names)
        self._pilot = pilot_seconds
        self._held = held
        self._begin = self._now = begin
        self._idle: dict[NodeName, float] = {}
        self._here: dict[NodeName, _Task] = {}
        self._wanted: dict[NodeName, list[int]] = {}
        self._settling: deque[tuple[float, float, tuple[NodeName, ...]]] = deque()
        self._rooms: dict[NodeName, None] = {}
        self._queue: list[tuple[int, _Task]] = []
        self._last_number = 0
        self._events: list[tuple[float, int, _Task]] = []
        self._serial = 0
        self._file_system_free = begin
        self._vacant: list[Vacant] = []

    def open(self) -> None:
        """Take all nodes to be idle from now on."""
        self._free(self._names)

    def due(self) -> float:
        settles = self._settling[0][0] if self._settling else _NEVER
        event = self._events[0][0] if self._events else _NEVER
        submit = _NEVER
        if self._rooms and self._scheme is not Scheme.PILOTS:
            submit = max(self._supply.due(), self._now)
        return min(settles, event, submit)

    def step(self, now: float, turn: Turn) -> list[Vacant]:
        self._now, self._vacant = now, []
        if turn.freed:
            self._free(tuple(turn.freed))
        wanted = [task for node, job in turn.taken if (task := self._take(node, job)) is not None]
        if wanted:
            self._evict(wanted)
        while self._settling and self._settling[0][0] <= now:
            _, since, nodes = self._settling.popleft()
            fresh = (n for n in nodes if self._idle.get(n) == since and n not in self._here)
            self._rooms.update(dict.fromkeys(fresh))
        self._happen()
        self._fill()
        return self._vacant

    def close(self, now: float) -> None:
        self._now = now
        for node, task in self._here.items():
            if node in self._idle:
                self.tally.harvested += max(0.0, min(now, task.finish) - task.ready)

    def _free(self, nodes: tuple[NodeName, ...]) -> None:
        self._idle.update(dict.fromkeys(nodes, self._now))
        settled = self._now
        if self._scheme is Scheme.PAPER:
            poll = self._site.poll_seconds
            polls = -(-(self._now - self._begin) // poll) + self._site.idle_looks - 1
            settled = self._begin + polls * poll
        self._settling.append((settled, self._now, nodes))

    def _take(self, node: NodeName, job: int) -> _Task | None:
        """Give up an idle node, and return what must leave it first."""
        self._idle.pop(node, None)
        self._rooms.pop(node, None)
        task = self._here.get(node)
        if task is None:
            return None
        waits = self._wanted.setdefault(node, [])
        waits.append(job)
        return task if len(waits) == 1 else None

    def _evict(self, tasks: list[_Task]) -> None:
        """Save or kill what runs on wanted nodes."""
        lasts = [0.0] * len(tasks)
        if self._scheme is Scheme.PAPER:
            costs, mibs = self._site.costs, [task.order.size.memory_mib for task in tasks]
            backlog = max(0.0, self._file_system_free - self._now)
            lasts = costs.evictions(mibs, backlog)
            self._file_system_free = self._now + backlog + costs.backlog(mibs)
        for task, seconds in zip(tasks, lasts, strict=True):
            done = max(0.0, min(self._now, task.finish) - task.ready)
            if self._scheme is Scheme.PAPER:
                task.left -= done
                task.saved = True
                self.tally.harvested += done
                self.tally.overhead += seconds
                self.tally.evictions += 1
            else:
                task.left = task.order.seconds
                self.tally.lost += done
                self.tally.kills += 1
            # It ends no more; this marks its eviction.
            task.finish = -1.0
            self._push(self._now + seconds, task)

    def _push(self, at: float, task: _Task) -> None:
        self._serial += 1
        heapq.heappush(self._events, (at, self._serial, task))

    def _happen(self) -> None:
        while self._events and self._events[0][0] <= self._now:
            at, _, task = heapq.heappop(self._events)
            node = task.node
            if node is None or self._here.get(node) is not task:
                continue
            if task.finish == at:
                self.tally.harvested += at - task.ready
                self.tally.completed += 1
                self._leave(task, node)
            elif task.finish < 0:
                if self._scheme is not Scheme.PILOTS:
                    heapq.heappush(self._queue, (task.number, task))
                self._leave(task, node)

    def _leave(self, task: _Task, node: NodeName) -> None:
        task.node, task.last = None, node
        del self._here[node]
        self._held.pop(node, None)
        self._vacant += [(node, job, self._now) for job in self._wanted.pop(node, ())]
        if node in self._idle:
            self._rooms[node] = None

    def _fill(self) -> None:
        for node in sorted(self._rooms):
            task = self._next()
            if task is None:
                return
            del self._rooms[node]
            self._place(task, node)

    def _next(self) -> _Task | None:
        if self._queue:
            return heapq.heappop(self._queue)[1]
        for order in self._supply.fetch(self._now, 1):
            self._last_number += 1
            pilot = self._scheme is Scheme.PILOTS
            return _Task(self._last_number, order, self._pilot if pilot else order.seconds)
        return None

    def _place(self, task: _Task, node: NodeName) -> None:
        costs = self._site.costs
        lasts = costs.resume(task.order.size.memory_mib) if task.saved else costs.start_seconds
        self.tally.overhead += lasts
        self.tally.placements += 1
        self.tally.migrations += task.saved and task.last != node
        task.node, task.ready = node, self._now + lasts
        task.finish = task.ready + task.left
        self._here[node] = task
        self._held[node] = task
        self._push(task.finish, task)
