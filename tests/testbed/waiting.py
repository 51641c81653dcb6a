"""Waiting for a condition, which is the only way that anything here waits."""

import time
from collections.abc import Callable
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
