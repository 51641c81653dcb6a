"""A bench on mock-Slurm's shims: real programs over the cluster model."""

from datetime import timedelta
from pathlib import Path

from adapters.mock_slurm.ledger import Ledger, Shims
from adapters.slurm.adapter import SlurmAdapter, SlurmSettings
from daemon.clock import Clock
from daemon.core.types import NodeName
from tests.contract.programs_bench import ProgramsBench


class ShimsBench(ProgramsBench):
    """Makes things happen through sbatch, scancel and scontrol."""

    full_words = "ALLOCATED"

    def __init__(
        self, folder: Path, version: str, nodes: int = 4, clock: Clock | None = None
    ) -> None:
        self.shims = Shims(folder)
        super().__init__(self.shims.bin_dir, nodes, clock)
        now = self.clock.now().timestamp()
        machines = [(str(node), 4, 4000) for node in self.nodes]
        self.shims.install(Ledger(version=version, machines=machines, start=now, now=now))
        settings = SlurmSettings(bin_dir=str(self.bin_dir), timeout_seconds=30)
        self.adapter = SlurmAdapter(settings, self.clock)

    def tell_time(self) -> None:
        with self.shims.ledger() as ledger:
            ledger.now = self.clock.now().timestamp()

    def submit(self, *nodes: NodeName, limit: timedelta = timedelta(minutes=10)) -> int:
        minutes = f"--time={limit.total_seconds() / 60:g}"
        return int(self.run("sbatch", "--parsable", f"--nodelist={','.join(nodes)}", minutes))

    def end(self, job: int) -> None:
        self.run("scancel", str(job))

    def suspend(self, job: int) -> None:
        self.run("scontrol", "suspend", str(job))

    def drain(self, node: NodeName) -> None:
        self.run("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")

    def undrain(self, node: NodeName) -> None:
        self.run("scontrol", "update", f"nodename={node}", "state=resume")

    def reserve(self, node: NodeName, *, maintenance: bool, after: float = 0.0) -> None:
        flags = ["flags=maint"] if maintenance else []
        start = f"starttime=now+{after:g}"
        self.run("scontrol", "create", "reservation", f"nodes={node}", start, *flags)

    def cut(self) -> None:
        with self.shims.ledger() as ledger:
            ledger.dead = True

    def restore(self) -> None:
        with self.shims.ledger() as ledger:
            ledger.dead = False
