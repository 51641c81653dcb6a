"""The model in a file, so that one program sees what another one did.

What is kept is what people did and when, and not what came of it: the model is
deterministic, so each program brings it about anew.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

from adapters.mock_slurm.model import Model
from adapters.mock_slurm.nouns import Machine, PriorityJob, Reservation
from adapters.standins import Folder
from daemon.core.types import NodeName

PROGRAMS = ("scontrol", "squeue", "sbatch", "scancel")


@dataclass(slots=True, kw_only=True)
class Act:
    """Something that somebody did."""

    at: float
    what: str
    job: int = 0
    nodes: list[str] = field(default_factory=list)
    #: When a reservation begins.
    begin: float = 0.0
    #: A time limit, or how long a reservation lasts.
    seconds: float = 0.0
    #: A reason, or the name of a reservation.
    text: str = ""
    maintenance: bool = False


@dataclass(slots=True, kw_only=True)
class Ledger:
    """A cluster and all that was done with it."""

    version: str = "22.05.8"
    machines: list[tuple[str, int, int]]
    start: float
    now: float
    #: The controller does not answer.
    dead: bool = False
    next_job: int = 1
    acts: list[Act] = field(default_factory=list)

    def model(self) -> Model:
        """Bring about what is now."""
        machines = [
            Machine(name=NodeName(name), cpus=cpus, memory_mib=mib)
            for name, cpus, mib in self.machines
        ]
        model = Model(machines, start=self.start)
        for act in self.acts:
            model.advance_to(max(act.at, model.now))
            _redo(model, act)
        model.advance_to(max(self.now, model.now))
        return model

    def reasons(self) -> dict[str, tuple[str, float]]:
        """Return why nodes are drained, and since when."""
        found: dict[str, tuple[str, float]] = {}
        for act in self.acts:
            if act.what == "drain":
                found |= dict.fromkeys(act.nodes, (act.text, act.at))
            elif act.what == "undrain":
                for node in act.nodes:
                    found.pop(node, None)
        return found


def _redo(model: Model, act: Act) -> None:
    nodes = tuple(map(NodeName, act.nodes))
    if act.what == "submit":
        job = PriorityJob(
            id=act.job,
            submit=act.at,
            nodes=len(nodes) or 1,
            runtime=act.seconds,
            limit=act.seconds,
            named=nodes,
        )
        model.submit(job)
    elif act.what == "reserve":
        model.reserve(
            Reservation(
                name=act.text,
                nodes=nodes,
                begin=act.begin,
                end=act.begin + act.seconds,
                maintenance=act.maintenance,
            )
        )
    elif act.what in {"drain", "undrain"}:
        for node in nodes:
            model.drain(node, drained=act.what == "drain")
    elif act.what == "cancel":
        model.end(act.job)
    elif act.what == "suspend":
        model.suspend(act.job)
    elif act.what == "resume":
        model.resume(act.job)


class Shims(Folder):
    """A folder with Slurm's programs, and the cluster that they speak of."""

    def install(self, ledger: Ledger) -> None:
        """Place the programs, and the cluster as it is given."""
        self._place("adapters.mock_slurm.programs", PROGRAMS, asdict(ledger))

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        """Open the ledger; what was done to it is kept when the block ends."""
        with self._opened() as document:
            acts = [Act(**act) for act in document.pop("acts")]
            ledger = Ledger(**document, acts=acts)
            yield ledger
            self._write(asdict(ledger))
