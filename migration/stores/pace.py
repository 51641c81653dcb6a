"""How fast streams may be: one bound for all of them together."""

import threading
from collections.abc import Iterable, Iterator

from daemon.clock import Clock

#: Sleeping takes a little longer than it should, at every piece.
_CREDIT_SECONDS = 0.25


class Pace:
    """Holds bytes back so that no more than so many go through in a second."""

    def __init__(self, clock: Clock, mib_per_second: float) -> None:
        """Take the bound; 0 is none."""
        self._clock = clock
        self._rate = mib_per_second * 2**20
        self._lock = threading.Lock()
        self._free_at = 0.0

    def held(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the pieces, each when its turn has come."""
        for piece in pieces:
            if self._rate:
                self._wait(len(piece))
            yield piece

    def _wait(self, size: int) -> None:
        with self._lock:
            now = self._clock.monotonic()
            # Who was late may catch up, but not for what nobody sent.
            begins = max(now - _CREDIT_SECONDS, self._free_at)
            self._free_at = begins + size / self._rate
        if begins > now:
            self._clock.wait(begins - now)
