"""Setting nodes up and looking them over, in the words of the desk."""

from dataclasses import dataclass

from daemon.core.types import NodeName
from migration.base import Fingerprint, NodeUnfitError
from migration.nodes import NodeSetup, Step, StepState
from migration.probe import Probe, Prober


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What was done to a node, or would be."""

    changed: bool
    steps: tuple[str, ...]


class NodeWorkshop:
    """Joins the set-up and the canary of a node."""

    def __init__(self, setup: NodeSetup, prober: Prober) -> None:
        self._setup = setup
        self._prober = prober

    def setup(self, node: NodeName, *, dry_run: bool) -> Done:
        """
        Place the shim on the node and register it, or tell what would be done.

        Raises:
            NodeUnfitError: a step failed; the text says which and why.
            EngineUnreachableError: the node does not answer.
        """
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
        return self._setup.fingerprint(node)

    def probe(self, node: NodeName) -> Probe:
        """Run the canary there."""
        return self._prober.probe(node)


def _line(step: Step) -> str:
    return f"{step.state.value}: {step.text}"
