"""The workshop: one at a time on each node, and the nodes side by side."""

import threading
from concurrent.futures import ThreadPoolExecutor

from daemon.core.types import NodeName
from daemon.workshop import NodeWorkshop
from migration.base import Fingerprint
from migration.nodes import Step
from migration.probe import Probe

_SECONDS = 10.0


class Nodes:
    """Nodes whose canaries fly until as many as are expected fly at once."""

    def __init__(self, together: int) -> None:
        self._barrier = threading.Barrier(together)
        self.met = 0
        self._flying: list[NodeName] = []
        self.crowded: list[NodeName] = []

    def setup(self, node: NodeName, *, dry_run: bool) -> tuple[Step, ...]:
        return ()

    def fingerprint(self, node: NodeName) -> Fingerprint:
        raise NotImplementedError

    def clear(self, node: NodeName) -> None:
        raise NotImplementedError

    def probe(self, node: NodeName) -> Probe:
        if node in self._flying:
            self.crowded.append(node)
        self._flying.append(node)
        self._barrier.wait(_SECONDS)
        self.met += 1
        self._flying.remove(node)
        return Probe(passed=True, reason="", other_users=True, figures=(), seconds=0.0)


def test_two_canaries_on_a_node_fly_one_after_the_other() -> None:
    """
    The loop and an administrator who probe a node at once do not disturb each other.
    """
    nodes = Nodes(together=2)
    workshop = NodeWorkshop(nodes, nodes)

    with ThreadPoolExecutor(4) as pool:
        names = [NodeName(name) for name in ("n1", "n1", "n2", "n2")]
        flights = [pool.submit(workshop.probe, name) for name in names]
        assert all(flight.result().passed for flight in flights)

    assert [] == nodes.crowded
    assert 4 == nodes.met
