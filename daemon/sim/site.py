"""How stopgap is set up at the simulated site."""

from dataclasses import dataclass, field

from daemon.core.policy import Policy
from daemon.sim.costs import Costs


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """How the daemon works at the simulated site."""

    policy: Policy = field(default_factory=Policy)
    costs: Costs = field(default_factory=Costs)
    cores_per_node: int = 1
    memory_mib: int = 16384
    #: Seconds between two questions to the batch system, and how often in a row it must call
    #: a node idle.
    poll_seconds: float = 15.0
    idle_looks: int = 1
