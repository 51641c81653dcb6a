"""Start-up: what the last daemon had begun, against the world.

Every action is written down before it is carried out.  What is left over tells which jobs
to look at first; what became of them is found out by the ordinary plan, which settles,
adopts or evicts each of them by what its engine and its receipts say.  So there is no second
way to decide, and a crash during the recovery is nothing special.  Jobs that have ended are
in no plan any more: what was to be done after their end is done here.
"""

from datetime import datetime

import structlog

from daemon.acts import ending
from daemon.acts.tools import Tools
from daemon.store import Intent

_log = structlog.get_logger(__name__)


def recover(tools: Tools) -> int:
    """Close the intents that nobody will finish, look at their nodes, return how many."""
    left = tools.store.unfinished()
    for intent in left:
        _log.warning("recovery.unfinished", job=intent.job, action=intent.action, node=intent.node)
        if intent.action == ending.FINISH:
            _finish(tools, intent)
        else:
            note = "left over by a daemon that ended"
            tools.store.finish(intent.id, now=tools.clock.now(), note=note)
    tools.observer.survey(sorted({intent.node for intent in left if intent.node is not None}))
    return len(left)


def clear_late(tools: Tools, *, before: datetime) -> None:
    """
    Delete what ended jobs have left, where that could not be done at a moment before.

    Their output is not written again: by now it is its owner's.
    """
    for intent in tools.store.unfinished():
        if intent.action == ending.FINISH and intent.begun < before:
            ending.clear(tools, intent.job, intent.id)


def _finish(tools: Tools, intent: Intent) -> None:
    job = tools.store.job(intent.job)
    if job is not None:
        ending.finish(tools, job, intent.id)
