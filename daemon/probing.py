"""Finding out whether a node can checkpoint and resume."""

from dataclasses import replace
from typing import Protocol

import structlog

from daemon.core.types import NodeName
from daemon.tools import Tools
from migration.base import EngineError, EngineUnreachableError, Fingerprint

_log = structlog.get_logger(__name__)


class Canary(Protocol):
    """What a canary's run found."""

    @property
    def passed(self) -> bool: ...
    @property
    def reason(self) -> str: ...
    @property
    def other_users(self) -> bool: ...


class Prober(Protocol):
    """Whatever can look a node over."""

    def fingerprint(self, node: NodeName) -> Fingerprint:
        """Return what the node runs now."""

    def probe(self, node: NodeName) -> Canary:
        """Run the canary there."""


def probe(tools: Tools, prober: Prober, node: NodeName, *, again: bool = False) -> Canary | None:
    """
    Make the node fit, or say why it is not.

    The canary is run only when something changed since it passed: a boot, an engine, a
    package; or when somebody asks for it.
    """
    known = tools.observer.record_of(node)
    now = tools.clock.now()
    canary: Canary | None = None
    try:
        digest = prober.fingerprint(node).digest
        if again or not known.probe_ok or known.probe_digest != digest:
            canary = prober.probe(node)
    except EngineUnreachableError:
        raise
    except EngineError as exc:
        record = replace(known, probe_ok=False, probe_why=str(exc), probe_digest="", probed=now)
    else:
        record = replace(known, probe_digest=digest, probe_why="", probed=now)
        if canary is not None:
            record = replace(
                record,
                probe_ok=canary.passed,
                probe_why=canary.reason,
                other_users=canary.other_users,
            )
    _log.info("node.probed", node=node, fit=record.probe_ok, reason=record.probe_why)
    retry = None if record.probe_ok else tools.clock.now() + tools.probe_retry
    tools.observer.probed(record, retry_at=retry)
    return canary
