"""Finding out whether a node can checkpoint and resume."""

from dataclasses import replace
from typing import Protocol

import structlog

from daemon.acts.tools import Tools
from daemon.core.types import NodeName, NodeState
from daemon.store import NodeRecord
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
    @property
    def interrupted(self) -> bool: ...


class Prober(Protocol):
    """Whatever can look a node over."""

    def fingerprint(self, node: NodeName) -> Fingerprint:
        """Return what the node runs now."""

    def probe(self, node: NodeName) -> Canary:
        """Run the canary there."""


def probe(tools: Tools, prober: Prober, node: NodeName) -> None:
    """
    Make the node fit, or say why it is not.

    The canary is run only when something changed since it passed: a boot, an engine, a package.
    """
    known = tools.observer.record_of(node)
    try:
        found = prober.fingerprint(node)
        if known.probe_ok and known.probe_digest == found.digest:
            now = tools.clock.now()
            _take(tools, replace(known, probe_why="", probed=now, machine=found.machine))
        else:
            keep(tools, node, prober.probe(node), found)
    except EngineUnreachableError as exc:
        tools.observer.distrust(node, str(exc), until=tools.clock.now() + tools.distrust)
        raise
    except EngineError as exc:
        _take(tools, replace(known, probe_ok=False, probe_why=str(exc), probe_digest=""))


def keep(tools: Tools, node: NodeName, canary: Canary, found: Fingerprint) -> None:
    """
    Remember what a canary found on a node of this fingerprint.

    One that had to give way to a priority job has found nothing: another is sent when the
    node is free again.
    """
    # The claim may be over by now, but the canary knows.
    if canary.interrupted or (not canary.passed and _is_claimed(tools, node)):
        _log.info("probe.interrupted", node=node, reason=canary.reason)
        why = f"claimed during its probe: {canary.reason}"
        tools.observer.distrust(node, why, until=tools.clock.now())
        return
    _take(
        tools,
        replace(
            tools.observer.record_of(node),
            probe_digest=found.digest,
            machine=found.machine,
            probe_ok=canary.passed,
            probe_why=canary.reason,
            probed=tools.clock.now(),
            other_users=canary.other_users,
        ),
    )


def _is_claimed(tools: Tools, node: NodeName) -> bool:
    snapshot = tools.observer.look()
    known = snapshot.cluster.nodes.get(node) if snapshot.cluster is not None else None
    busy = known is not None and known.state is not NodeState.IDLE
    return busy or any(claim.node == node for claim in snapshot.claims)


def _take(tools: Tools, record: NodeRecord) -> None:
    _log.info("node.probed", node=record.name, fit=record.probe_ok, reason=record.probe_why)
    retry = None if record.probe_ok else tools.clock.now() + tools.probe_retry
    tools.observer.probed(record, retry_at=retry)
