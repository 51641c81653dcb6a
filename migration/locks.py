"""Locks by key, for as long as somebody holds or waits for one: jobs and images come and go."""

import threading
from collections.abc import Hashable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

_Key = TypeVar("_Key", bound=Hashable)


class Locks(Generic[_Key]):
    """One lock for each key; the thread that has it may take it again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: WeakValueDictionary[_Key, threading.RLock] = WeakValueDictionary()

    def of(self, key: _Key) -> threading.RLock:
        """Return the key's lock: the same one as long as anybody has it in hand."""
        with self._lock:
            return self._known.setdefault(key, threading.RLock())
