"""A bench on the PBS stand-ins: real programs over one PBS model."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from adapters.mock_pbs.model import Model
from adapters.mock_pbs.nouns import Cluster as PbsCluster
from adapters.mock_pbs.nouns import Vnode
from adapters.mock_pbs.store import Standins
from adapters.pbs.adapter import PbsAdapter, PbsSettings
from daemon.clock import Clock
from daemon.core.types import NodeName
from tests.contract.programs_bench import ProgramsBench

_CORES = 4


def cluster(*nodes: str, cores: int = _CORES) -> PbsCluster:
    """Return idle nodes of one vnode each."""
    return PbsCluster(vnodes=[Vnode(name=name, host=name, ncpus=cores) for name in nodes])


class PbsBench(ProgramsBench):
    """Makes things happen through qsub, qdel, qsig and pbsnodes."""

    full_words = "job-busy"

    def __init__(
        self, folder: Path, nodes: int = 4, clock: Clock | None = None, *, real_time: bool = False
    ) -> None:
        self._real_time = real_time
        self.standins = Standins(folder)
        super().__init__(self.standins.bin_dir, nodes, clock)
        self.standins.install(cluster(*self.nodes))
        settings = PbsSettings(bin_dir=str(self.bin_dir), timeout_seconds=30)
        self.adapter = PbsAdapter(settings, self.clock)
        self.tell_time()

    def tell_time(self) -> None:
        with self._model():
            pass

    def submit(self, *nodes: NodeName, limit: timedelta = timedelta(minutes=10)) -> int:
        select = "+".join(f"1:ncpus={_CORES}:vnode={node}" for node in nodes)
        walltime = f"walltime={limit.total_seconds():.0f}"
        job = self.run("qsub", "-N", "priority", "-l", f"select={select}", "-l", walltime, "job.sh")
        return int(job.split(".")[0])

    def end(self, job: int) -> None:
        self.run("qdel", str(job))

    def suspend(self, job: int) -> None:
        self.run("qsig", "-s", "suspend", str(job))

    def drain(self, node: NodeName) -> None:
        self.run("pbsnodes", "-o", node)

    def undrain(self, node: NodeName) -> None:
        self.run("pbsnodes", "-r", node)

    def reserve(self, node: NodeName, *, maintenance: bool, after: float = 0.0) -> None:
        with self._model() as model:
            begin = model.now + after
            model.reserve(node, begin=begin, seconds=3600, maintenance=maintenance)

    def cut(self) -> None:
        with self._model() as model:
            model.cluster.dead = True

    def restore(self) -> None:
        with self._model() as model:
            model.cluster.dead = False

    @contextmanager
    def _model(self) -> Iterator[Model]:
        """Open the model at the clock's time, which real programs know by themselves."""
        with self.standins.model() as model:
            if not self._real_time:
                model.cluster.now = model.now = self.clock.now().timestamp()
                model.cycle()
            yield model
