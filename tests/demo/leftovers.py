"""What is left of our jobs on the machine when all have ended: nothing must be."""

from pathlib import Path

from migration.manifest import ROOT_MARK
from tests.testbed import Bed, cgroups
from tests.testbed.processes import command, everybody


class Leftovers:
    """Knows what belongs to the bed itself, by how things stood before the first job."""

    def __init__(self, bed: Bed) -> None:
        self._bed = bed
        self._mounts = _mounts(bed.root)

    def containers(self) -> list[str]:
        """Return all containers on all engines, one line each."""
        return [
            f"container {name} on {node}"
            for node in self._bed.nodes
            for name in self._bed.docker(node, "ps", "--all", "--format", "{{.Names}}").splitlines()
        ]

    def others(self) -> list[str]:
        """Return everything else that is left, one line each."""
        bed = self._bed
        found = [f"container's process {pid}" for pid in self._shims()]
        for node in bed.nodes:
            top = f"{bed.layout.cgroups[0]}/{node}"
            found += [
                f"process {process.pid} in {place}"
                for place, members in cgroups.members(top).items()
                for process in members
            ]
            found += [f"cgroup {entry}" for entry in cgroups.folders(top) if entry.name != node]
        found += [f"mount {point}" for point in sorted(_mounts(bed.root) - self._mounts)]
        found += [
            f"checkpoint {entry}"
            for entry in sorted(bed.checkpoints.rglob("*"))
            if entry.name != ROOT_MARK
        ]
        return found

    def _shims(self) -> list[int]:
        """containerd keeps one process beside each container."""
        root = f"{self._bed.root}/"
        return [
            process.pid
            for process in everybody()
            if (words := command(process))
            and "containerd-shim" in words[0]
            and any(word.startswith(root) for word in words)
        ]


def _mounts(root: Path) -> set[str]:
    """Return the mount points below a root."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return {point for line in lines if (point := line.split(" ")[4]).startswith(f"{root}/")}
