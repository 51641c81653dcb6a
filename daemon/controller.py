"""One tick: look, decide, act.  The same for the daemon and for a simulation."""

from collections.abc import Callable
from typing import Protocol

import structlog

from daemon.core.actions import Action, jobs_of
from daemon.core.plan import plan
from daemon.core.policy import Policy
from daemon.core.shadow import Shadow, follow
from daemon.core.types import Snapshot

_log = structlog.get_logger(__name__)


class Eyes(Protocol):
    """Whatever can be looked at."""

    def look(self) -> Snapshot:
        """Return everything that is known now."""


class Hands(Protocol):
    """Whatever can carry out an action."""

    def perform(self, action: Action) -> None:
        """Begin the action; its outcome shows in a later look."""


def log(action: Action) -> None:
    """Write one line about an action that is begun."""
    _log.info(
        f"action.{type(action).__name__.lower()}",
        jobs=jobs_of(action),
        node=getattr(action, "node", None) or getattr(getattr(action, "ref", None), "node", None),
        reason=action.reason,
    )


class Controller:
    """Joins eyes, the plan and hands."""

    def __init__(
        self, *, eyes: Eyes, hands: Hands, policy: Policy, tell: Callable[[Action], None] = log
    ) -> None:
        """Set up; ``tell`` hears of every action before it is begun."""
        self._eyes = eyes
        self._hands = hands
        self._policy = policy
        self._tell = tell
        #: What the last tick saw.
        self.seen: Snapshot | None = None
        #: What would have been done so far; None when it is.
        self.shadow: Shadow | None = None

    def adopt(self, policy: Policy) -> None:
        """Decide by this policy from the next tick on."""
        self._policy = policy

    def tick(self) -> tuple[Action, ...]:
        """Look, decide, act once; return what was begun."""
        snapshot = self.seen = self._eyes.look()
        actions = plan(snapshot, self._policy)
        for action in actions:
            self._tell(action)
            self._hands.perform(action)
        self.shadow = self._imagine(snapshot) if self._policy.shadow else None
        return actions

    def _imagine(self, snapshot: Snapshot) -> Shadow:
        shadow = self.shadow or Shadow(since=snapshot.now)
        shadow, actions = follow(shadow, snapshot, self._policy)
        for action in actions:
            _log.info(
                f"shadow.{type(action).__name__.lower()}",
                jobs=jobs_of(action),
                node=action.node,
                reason=action.reason,
            )
        return shadow
