"""A clock that a test moves."""

import threading
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """Stands still until it is moved or somebody waits on it."""

    def __init__(self) -> None:
        self._passed = 0.0
        self._lock = threading.Lock()

    def now(self) -> datetime:
        return START + timedelta(seconds=self._passed)

    def monotonic(self) -> float:
        return self._passed

    def wait(self, seconds: float) -> None:
        with self._lock:
            self._passed += seconds
