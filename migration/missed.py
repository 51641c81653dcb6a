"""Ends that Docker has missed.

dockerd learns of a container's end through an event of containerd's.  One that comes while
containerd is away for more than a few seconds is lost, and the container counts as running for
good (seen with Docker 20.10.24 and containerd 1.6.20).  Its list of processes is empty then,
and a signal to what does not exist makes dockerd look at last.
"""

import threading
from collections.abc import Iterable

import structlog

from daemon.clock import Clock
from daemon.core.types import Phase, SegmentView
from migration.base import EngineError
from migration.docker import Docker

_log = structlog.get_logger(__name__)

#: Between two looks at a container, and before the first.
_EVERY_SECONDS = 45.0


class MissedEnds:
    """Looks now and then behind the word ``running``, at one container at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: When each container is to be looked at, by engine.
        self._due: dict[str, dict[str, float]] = {}

    def look(self, docker: Docker, views: Iterable[SegmentView]) -> None:
        """Have the engine notice what has ended; it takes some seconds to do so."""
        container = self._turn(docker.address, views)
        if container is None:
            return
        try:
            if docker.get(f"/containers/{container}/top")["Processes"]:
                return
            _log.warning("end.missed", container=container, engine=docker.address)
            # Harmless if it lives after all: it was not stopped.
            docker.call("POST", f"/containers/{container}/kill", params={"signal": "CONT"})
        except EngineError as exc:
            # It has ended meanwhile, or its containerd is away: the next look will tell.
            _log.info("end.not_looked_for", container=container, reason=str(exc))

    def _turn(self, engine: str, views: Iterable[SegmentView]) -> str | None:
        """Return the container whose turn has been for the longest time."""
        now = self._clock.monotonic()
        with self._lock:
            known = self._due.get(engine, {})
            due = {
                view.container: known.get(view.container, now + _EVERY_SECONDS)
                for view in views
                if view.phase is Phase.RUNNING
            }
            self._due[engine] = due
            first = min(due, key=lambda container: due[container], default=None)
            if first is None or due[first] > now:
                return None
            due[first] = now + _EVERY_SECONDS
        return first
