"""What stopgap remembers: jobs, segments, checkpoints, intents.  Rows do not leave this package."""

from daemon.store.repository import IntentId, NodeRecord, Store, StoreError

__all__ = ["IntentId", "NodeRecord", "Store", "StoreError"]
