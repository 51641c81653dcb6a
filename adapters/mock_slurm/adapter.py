"""The cluster model as a batch system: what Slurm would say about it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType

from adapters.base import Capabilities, UnreachableError
from adapters.mock_slurm import text
from adapters.mock_slurm.model import Model
from adapters.mock_slurm.nouns import Machine, MachineView, Planned
from daemon.clock import Clock
from daemon.core.types import Claim, ClaimSource, Cluster, Node, NodeName, NodeState


@dataclass(frozen=True, slots=True, kw_only=True)
class MockSettings:
    """The size of a cluster of equal nodes, for trying things out."""

    nodes: int = 4
    cpus: int = 8
    memory_mib: int = 16384


def build(settings: MockSettings, clock: Clock) -> Model:
    """Return an idle cluster of that size."""
    machines = (
        Machine(name=NodeName(f"n{number}"), cpus=settings.cpus, memory_mib=settings.memory_mib)
        for number in range(1, settings.nodes + 1)
    )
    return Model(machines, start=clock.now().timestamp())


class MockAdapter:
    """
    A batch system whose cluster is a model; it can be cut off.

    With a clock each look moves the model's time to that of the clock; without one
    whoever owns the model does that.
    """

    def __init__(self, model: Model, clock: Clock | None = None) -> None:
        self.model = model
        self._clock = clock
        self._cut = ""
        self._version = ""

    @property
    def name(self) -> str:
        return "mock"

    @property
    def version(self) -> str:
        return self._version

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(predicts_start_times=True, lists_reservations=True)

    def cut(self, why: str = "Unable to contact slurm controller (connect failure)") -> None:
        """Answer nothing more until ``restore``."""
        self._cut = why

    def restore(self) -> None:
        """Answer again."""
        self._cut = ""

    def look(self) -> Cluster:
        """
        Return every node of the model.

        Raises:
            UnreachableError: it is cut off, or has no nodes.
        """
        if self._cut:
            raise UnreachableError(self._cut)
        if self._clock is not None:
            self.model.advance_to(max(self._clock.now().timestamp(), self.model.now))
        planned = self.model.planned()
        nodes = [_node(view, planned, self.model.now) for view in self.model.machines()]
        if not nodes:
            raise UnreachableError("the answer has no nodes")
        self._version = "model"
        named = MappingProxyType({node.name: node for node in nodes})
        return Cluster(nodes=named, taken=_moment(self.model.now))

    def findings(self) -> tuple[str, ...]:
        """Return what an administrator should change: nothing."""
        return ()


def _node(view: MachineView, planned: Planned | None, now: float) -> Node:
    machine = view.machine
    here = planned if planned is not None and machine.name in planned.nodes else None
    flags = text.flags(view, planned)
    claims = sorted(_claims(view, here, now), key=lambda claim: claim.at)
    return Node(
        name=machine.name,
        state=_state(view, flags),
        cpus=machine.cpus,
        memory_mib=machine.memory_mib,
        words="+".join((_base(view), *flags)),
        partitions=("main",),
        claims=tuple(claims),
    )


def _base(view: MachineView) -> str:
    if view.down:
        return "DOWN"
    return "ALLOCATED" if view.allocated else "IDLE"


def _state(view: MachineView, flags: tuple[str, ...]) -> NodeState:
    if view.down or {"DRAIN", "RESERVED"} & set(flags):
        return NodeState.UNAVAILABLE
    if view.phase is not None:
        return NodeState.BUSY
    return NodeState.UNAVAILABLE if flags else NodeState.IDLE


def _claims(view: MachineView, planned: Planned | None, now: float) -> list[Claim]:
    name, found = view.machine.name, []
    if view.job is not None:
        began = view.began if view.began is not None else now
        found.append(_claim(name, ClaimSource.ALLOCATED, began, f"priority job {view.job.id}"))
    if planned is not None:
        detail = f"priority job {planned.job.id}"
        found.append(_claim(name, ClaimSource.PLANNED, planned.at, detail))
    reserved = view.reserved or view.next_reserved
    if reserved is not None:
        found.append(_claim(name, ClaimSource.RESERVED, reserved.begin, reserved.name))
    if view.drained:
        found.append(_claim(name, ClaimSource.DRAINING, now, "drained"))
    return found


def _claim(node: NodeName, source: ClaimSource, at: float, detail: str) -> Claim:
    return Claim(node=node, source=source, at=_moment(at), detail=detail)


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
