"""What every part of the desk works with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from daemon.acts import probing
from daemon.acts.tools import Tools
from daemon.config import Config
from daemon.core.policy import Policy
from daemon.core.types import NodeName
from daemon.desk.hooks import HookGuard
from daemon.desk.pulse import Pulse
from daemon.store import Store
from migration.base import Fingerprint


class Prepared(Protocol):
    """What was done to a node, or would be."""

    @property
    def changed(self) -> bool: ...
    @property
    def steps(self) -> Sequence[str]: ...


class Examined(probing.Canary, Protocol):
    """What a canary found, with its figures."""

    @property
    def rounds(self) -> int: ...
    @property
    def seconds(self) -> float: ...


class Workshop(Protocol):
    """Whatever sets nodes up and looks them over."""

    def setup(self, node: NodeName, *, dry_run: bool) -> Prepared:
        """Place the shim on the node and register it, or tell what would be done."""

    def fingerprint(self, node: NodeName) -> Fingerprint:
        """Return what the node runs now."""

    def probe(self, node: NodeName) -> Examined:
        """Run the canary there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of the daemon that callers get to."""

    tools: Tools
    config: Config
    policy: Policy
    workshop: Workshop
    guard: HookGuard
    pulse: Pulse

    @property
    def _store(self) -> Store:
        return self.tools.store
