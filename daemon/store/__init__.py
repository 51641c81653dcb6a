"""What stopgap remembers: jobs, segments, checkpoints, intents.  Rows do not leave this package."""

from daemon.store.database import StoreError
from daemon.store.records import (
    EVERY_NODE,
    EvictionRecord,
    HistoryLine,
    Intent,
    IntentId,
    NodeRecord,
)
from daemon.store.repository import Store

__all__ = [
    "EVERY_NODE",
    "EvictionRecord",
    "HistoryLine",
    "Intent",
    "IntentId",
    "NodeRecord",
    "Store",
    "StoreError",
]
