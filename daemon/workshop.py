"""Setting nodes up and looking them over, in the words of the desk.

One at a time on each node: the loop and an administrator may want it at once, and two
canaries there would be one job twice.
"""

import threading
from collections import defaultdict
from dataclasses import dataclass
from typing import Protocol

from daemon.core.types import NodeName
from migration.base import Fingerprint, NodeUnfitError
from migration.nodes import Step, StepState
from migration.probe import Probe


class Setup(Protocol):
    """Whatever places the shim on nodes."""

    def setup(self, node: NodeName, *, dry_run: bool) -> tuple[Step, ...]: ...
    def fingerprint(self, node: NodeName) -> Fingerprint: ...


class Canaries(Protocol):
    """Whatever sends canaries."""

    def probe(self, node: NodeName) -> Probe: ...
    def clear(self, node: NodeName) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What was done to a node, or would be."""

    changed: bool
    steps: tuple[str, ...]


class NodeWorkshop:
    """Joins the set-up and the canary of a node."""

    def __init__(self, setup: Setup, canaries: Canaries) -> None:
        self._setup = setup
        self._canaries = canaries
        self._lock = threading.Lock()
        self._turns: defaultdict[NodeName, threading.Lock] = defaultdict(threading.Lock)

    def setup(self, node: NodeName, *, dry_run: bool) -> Done:
        """
        Place the shim on the node and register it, or tell what would be done.

        Raises:
            NodeUnfitError: a step failed; the text says which and why.
            EngineUnreachableError: the node does not answer.
        """
        with self._turn(node):
            steps = self._setup.setup(node, dry_run=dry_run)
        failed = [step for step in steps if step.state is StepState.FAILED]
        if failed:
            raise NodeUnfitError(failed[0].text)
        return Done(
            changed=any(step.state is not StepState.ALREADY for step in steps),
            steps=tuple(_line(step) for step in steps),
        )

    def fingerprint(self, node: NodeName) -> Fingerprint:
        """Return what the node runs now."""
        with self._turn(node):
            # Asked for before every use of the node: the time to end what a killed daemon left.
            self._canaries.clear(node)
            return self._setup.fingerprint(node)

    def probe(self, node: NodeName) -> Probe:
        """Run the canary there."""
        with self._turn(node):
            return self._canaries.probe(node)

    def _turn(self, node: NodeName) -> threading.Lock:
        with self._lock:
            return self._turns[node]


def _line(step: Step) -> str:
    return f"{step.state.value}: {step.text}"
