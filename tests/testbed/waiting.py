"""Waiting for a condition, which is the only way that anything here waits."""

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class TookTooLongError(Exception):
    """The condition did not come true in time."""


def wait_until(condition: Callable[[], T], seconds: float, what: str, *, every: float = 0.02) -> T:
    """
    Return the first true value of the condition.

    Raises:
        TookTooLongError: it was still false at the end.
    """
    end = time.monotonic() + seconds
    while True:
        if value := condition():
            return value
        if time.monotonic() > end:
            raise TookTooLongError(f"waited {seconds:g} s for {what}")
        time.sleep(every)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Let one program at a time make what is kept in a folder; the others then find it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
