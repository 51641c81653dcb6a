"""Start-up: what the last daemon had begun, against the world.

Every action is written down before it is carried out.  What is left over tells which jobs
to look at first; what became of them is found out by the ordinary plan, which settles,
adopts or evicts each of them by what its engine and its receipts say.  So there is no second
way to decide, and a crash during the recovery is nothing special.
"""

from collections.abc import Callable

import structlog

from daemon.clock import Clock
from daemon.core.types import NodeName
from daemon.store import Store

_log = structlog.get_logger(__name__)


def recover(store: Store, clock: Clock, survey: Callable[[list[NodeName]], None]) -> int:
    """Close the intents that nobody will finish, look at their nodes, return how many."""
    left = store.unfinished()
    for intent in left:
        _log.warning("recovery.unfinished", job=intent.job, action=intent.action, node=intent.node)
        store.finish(intent.id, now=clock.now(), note="left over by a daemon that ended")
    survey(sorted({intent.node for intent in left if intent.node is not None}))
    return len(left)
