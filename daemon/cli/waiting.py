"""Waiting for jobs to end, across restarts of the daemon."""

from collections.abc import Iterator

from daemon.api.client import Client, DaemonUnreachableError, Document
from daemon.clock import Clock, SystemClock
from daemon.core.types import TERMINAL

_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 3.0
#: A daemon that restarts is back within seconds; one that is not is a case for a person.
_PATIENCE_SECONDS = 60.0


class Wait:
    """Asks about jobs, less and less often, until all have ended or the time is over."""

    def __init__(
        self, client: Client, jobs: list[int], timeout: float | None, clock: Clock | None = None
    ) -> None:
        self._client = client
        self._clock = clock if clock is not None else SystemClock()
        self._timeout = timeout
        self.missing = list(dict.fromkeys(jobs))
        self.ended: dict[int, Document] = {}

    def ends(self) -> Iterator[Document]:
        """
        Yield each job as it is found ended.

        Raises:
            ClientRefusedError: there is no such job.
            DaemonUnreachableError: for longer than a restart takes.
        """
        begun = self._clock.monotonic()
        answered: float | None = None
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                for job in tuple(self.missing):
                    found = self._client.job(job)
                    if found["state"] in TERMINAL:
                        self.missing.remove(job)
                        self.ended[job] = found
                        yield found
                        pause = _FIRST_PAUSE_SECONDS
                answered = self._clock.monotonic()
            except DaemonUnreachableError:
                # Never seen at all is a wrong socket rather than a restart.
                if answered is None or self._clock.monotonic() - answered > _PATIENCE_SECONDS:
                    raise
            if not self.missing or self._over(begun):
                return
            self._clock.wait(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE_SECONDS)

    def _over(self, begun: float) -> bool:
        return self._timeout is not None and self._clock.monotonic() - begun >= self._timeout
