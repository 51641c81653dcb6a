"""A bench on mock-Slurm's shims: real programs over the cluster model."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from adapters import commands
from adapters.mock_slurm.ledger import Ledger, Shims
from adapters.slurm.adapter import SlurmAdapter, SlurmSettings
from daemon.clock import Clock
from daemon.core.types import Cluster, NodeName
from tests.contract.clock import ManualClock


class ShimsBench:
    """Makes things happen through sbatch, scancel and scontrol."""

    full_words = "ALLOCATED"

    def __init__(
        self, folder: Path, version: str, nodes: int = 4, clock: Clock | None = None
    ) -> None:
        self.nodes = tuple(NodeName(f"n{number}") for number in range(1, nodes + 1))
        self.clock = clock or ManualClock()
        now = self.clock.now().timestamp()
        machines = [(str(node), 4, 4000) for node in self.nodes]
        self.shims = Shims(folder)
        self.shims.install(Ledger(version=version, machines=machines, start=now, now=now))
        settings = SlurmSettings(bin_dir=str(self.shims.bin_dir), timeout_seconds=30)
        self.adapter = SlurmAdapter(settings, self.clock)

    def tell_time(self) -> None:
        """Let the model's time be the clock's."""
        with self.shims.ledger() as ledger:
            ledger.now = self.clock.now().timestamp()

    def run(self, *argv: str) -> str:
        """Run one of Slurm's programs."""
        self.tell_time()
        answer = commands.run(argv, timeout_seconds=30, bin_dir=str(self.shims.bin_dir))
        assert (0, "") == (answer.code, answer.err), argv
        return answer.out

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

    def until(self, condition: Callable[[Cluster], bool]) -> Cluster:
        for _ in range(20):
            self.clock.wait(1)
            self.tell_time()
            cluster = self.adapter.look()
            if condition(cluster):
                return cluster
        raise AssertionError(f"never came true; last: {dict(self.adapter.look().nodes)}")
