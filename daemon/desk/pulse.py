"""The daemon's own state: what it last did, and whether that is well."""

import threading
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version

import psutil

from adapters.base import BatchAdapter
from daemon.api.schemas import StatusView
from daemon.core.shadow import Shadow
from daemon.core.types import Movable, Snapshot
from daemon.desk import views
from daemon.observer import Observer
from daemon.store import EvictionRecord


class Pulse:
    """Wakes the loop, and tells how it fares."""

    def __init__(self, *, instance: str, adapter: BatchAdapter) -> None:
        self._instance = instance
        self._adapter = adapter
        self._observer: Observer | None = None
        self._awake = threading.Event()
        self._last_tick: datetime | None = None
        self._tick_seconds: float | None = None
        self._shadow: Shadow | None = None

    def watch(self, observer: Observer) -> None:
        """Tell of what this observer sees."""
        self._observer = observer

    def wake(self) -> None:
        """Have the loop look at once."""
        self._awake.set()

    def wait(self, seconds: float) -> None:
        """Sleep until somebody wakes the loop, at most so long."""
        self._awake.wait(seconds)
        self._awake.clear()

    def ticked(self, at: datetime, seconds: float, shadow: Shadow | None = None) -> None:
        """Note that a tick is over, and what it imagined."""
        self._last_tick = at
        self._shadow = shadow
        self._tick_seconds = round(seconds, 4)

    def sentence(self, snapshot: Snapshot | None) -> str:
        """Return what systemd and ``stopgap status`` show."""
        if self._observer is None or snapshot is None:
            return "starting"
        found = views.summary(snapshot, self._adapter.name, self._observer.batch_trouble)
        return found if self._shadow is None else f"shadow mode, nothing is started: {found}"

    def status(self, evictions: Sequence[EvictionRecord]) -> StatusView:
        """Return everything at once."""
        if self._observer is None:
            raise RuntimeError("nothing is watched yet")
        snapshot = self._observer.look()
        problems = _problems(snapshot, self._adapter.name, self._observer.batch_trouble)
        nodes = snapshot.cluster.nodes.values() if snapshot.cluster is not None else ()
        own = psutil.Process()
        times = own.cpu_times()
        return StatusView(
            summary=self.sentence(snapshot),
            healthy=not problems,
            version=installed_version(),
            instance=self._instance,
            batch=self._adapter.name,
            batch_version=self._adapter.version,
            batch_answered=snapshot.cluster.taken if snapshot.cluster is not None else None,
            batch_age_seconds=views.age_seconds(snapshot),
            batch_seconds=_rounded(self._observer.batch_seconds),
            last_tick=self._last_tick,
            tick_seconds=self._tick_seconds,
            memory_mib=round(own.memory_info().rss / 2**20, 1),
            cpu_seconds=round(times.user + times.system, 2),
            jobs=dict(Counter(job.state for job in snapshot.jobs)),
            nodes=dict(Counter(node.state for node in nodes)),
            problems=problems + _panics(snapshot) + _limits(snapshot) + _unmovable(snapshot),
            evictions=views.evictions_view(evictions),
            shadow=None if self._shadow is None else views.shadow_view(self._shadow),
        )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _problems(snapshot: Snapshot, batch: str, trouble: str) -> list[str]:
    found = [f"{batch} does not answer: {trouble}"] if trouble else []
    found += [
        f"{engine.node}: its engine does not answer: {engine.why}"
        for _, engine in sorted(snapshot.engines.items())
        if not engine.reachable
    ]
    found += [
        f"{engine.node} gets no job: {engine.why}"
        for _, engine in sorted(snapshot.engines.items())
        # One that is due has its canary soon: nothing is wrong.
        if engine.reachable and not engine.fit and _later(engine.probe_after, snapshot.now)
    ]
    return found


def _later(moment: datetime | None, now: datetime) -> bool:
    return moment is not None and moment > now


def _panics(snapshot: Snapshot) -> list[str]:
    if not snapshot.panicked:
        return []
    count = len(snapshot.panicked)
    return [f"panic was called on {count} nodes: they get no job until 'stopgap panic --over'"]


def _limits(snapshot: Snapshot) -> list[str]:
    """Return what a person should know although all works as it can."""
    return [
        f"{engine.node}: {engine.why}"
        for _, engine in sorted(snapshot.engines.items())
        if engine.reachable and engine.fit and not engine.other_users
    ]


def _unmovable(snapshot: Snapshot) -> list[str]:
    """Return which jobs would lose work if their nodes were wanted now."""
    found = [str(job.id) for job in snapshot.jobs if job.movable is Movable.NO]
    if not found:
        return []
    shown = ", ".join(found[:10]) + (" and others" if len(found) > 10 else "")
    return [f"{len(found)} jobs cannot be moved; stopgap show tells why: {shown}"]


def installed_version() -> str:
    """Return the version of this stopgap."""
    try:
        return version("stopgap")
    except PackageNotFoundError:
        return "unknown"
