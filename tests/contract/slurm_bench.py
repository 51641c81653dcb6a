"""A bench on the real Slurm of a bed."""

import signal
from collections.abc import Callable
from datetime import timedelta

from adapters.slurm.adapter import SlurmAdapter, SlurmSettings
from daemon.clock import SystemClock
from daemon.core.types import Cluster, NodeName, NodeState
from tests.testbed import Bed, wait_until

_SECONDS = 60


class SlurmBench:
    """Makes things happen through sbatch, scancel and scontrol."""

    full_words = "ALLOCATED"

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.nodes = tuple(map(NodeName, bed.nodes))
        # A controller that is gone costs the commands ten seconds.
        settings = SlurmSettings(conf=str(bed.layout.slurm_conf), timeout_seconds=30)
        self.adapter = SlurmAdapter(settings, SystemClock())

    def submit(
        self, *nodes: NodeName, limit: timedelta = timedelta(minutes=10), name: str = "priority"
    ) -> int:
        argv = ["sbatch", "--parsable", "--partition=priority", "--output=/dev/null"]
        argv += [f"--job-name={name}", f"--nodes={len(nodes)}", f"--nodelist={','.join(nodes)}"]
        argv += [f"--time={limit.total_seconds() // 60:.0f}", "--wrap=sleep 3600"]
        return int(self.bed.run(argv).stdout)

    def end(self, job: int) -> None:
        self.bed.run(["scancel", str(job)])

    def suspend(self, job: int) -> None:
        self.bed.run(["scontrol", "suspend", str(job)])

    def hold(self, job: int) -> None:
        self.bed.run(["scontrol", "hold", str(job)])

    def drain(self, node: NodeName, reason: str = "test") -> None:
        self._update(node, "state=drain", f"reason={reason}")

    def undrain(self, node: NodeName) -> None:
        self._update(node, "state=resume")

    def reserve(self, node: NodeName, *, maintenance: bool, after: float = 0.0) -> None:
        flags = ["flags=maint"] if maintenance else []
        argv = ["scontrol", "create", "reservation", f"nodes={node}", "users=root"]
        self.bed.run([*argv, f"starttime=now+{after:.0f}", "duration=60", *flags])

    def cut(self) -> None:
        # Not SIGKILL: a controller that cannot save its state forgets its latest jobs.
        self.bed.kill("slurmctld", number=signal.SIGTERM)

    def restore(self) -> None:
        if self.bed.process("slurmctld") is None:
            self.bed.restart("slurmctld")

    def until(self, condition: Callable[[Cluster], bool]) -> Cluster:
        def look() -> Cluster | None:
            cluster = self.adapter.look()
            return cluster if condition(cluster) else None

        found = wait_until(look, _SECONDS, "the cluster to be as it should", every=0.1)
        assert found is not None
        return found

    def reset(self) -> None:
        """Make every node idle again, whatever a test left behind."""
        self.restore()
        jobs = self.bed.run(["squeue", "--noheader", "--format=%A"]).stdout.split()
        if jobs:
            self.bed.run(["scancel", *jobs])
        for line in self.bed.run(["scontrol", "show", "reservation", "-o"]).stdout.splitlines():
            name, is_pair, _ = line.removeprefix("ReservationName=").partition(" ")
            if is_pair and line.startswith("ReservationName="):
                self.bed.run(["scontrol", "delete", f"reservation={name}"])
        for node in self.adapter.look().nodes.values():
            if "DRAIN" in node.words:
                self.undrain(node.name)
        self.until(lambda c: {NodeState.IDLE} == {node.state for node in c.nodes.values()})

    def _update(self, node: NodeName, *changes: str) -> None:
        self.bed.run(["scontrol", "update", f"nodename={node}", *changes])
