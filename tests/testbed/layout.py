"""Where everything of one bed lies, and what is known about the bed from outside."""

import json
import os
import random
import socket
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.testbed.paths import CRIU_BIN
from tests.testbed.processes import Process, identify

#: Marks every process of a bed in its environment, so that what has lost its parent
#: is still found.  Nothing that a person starts in a bed's shell carries it.
MARK = "BED_MARK"

#: Below the range from which the kernel gives out ports by itself.
_PORTS = range(17000, 32000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The names, numbers and places of one bed."""

    root: Path
    #: Unique among the beds of a machine: names cgroups.
    instance: str
    nodes: tuple[str, ...]
    #: By component: ``slurmctld``, ``hook`` and each node's slurmd.
    ports: dict[str, int] = field(default_factory=dict)
    #: The program whose bed this is; it is torn down when that has gone.
    owner: tuple[int, int] | None = None

    @property
    def registry(self) -> Path:
        return self.root / "processes"

    @property
    def logs(self) -> Path:
        return self.root / "log"

    @property
    def slurm(self) -> Path:
        return self.root / "slurm"

    @property
    def slurm_conf(self) -> Path:
        return self.slurm / "slurm.conf"

    @property
    def munge(self) -> Path:
        return self.root / "munge"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def socket(self) -> Path:
        return self.root / "stopgap.sock"

    @property
    def config(self) -> Path:
        return self.root / "stopgap.toml"

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    @property
    def node_path(self) -> str:
        """The PATH of everything that runs on nodes, the private CRIU first."""
        return f"{CRIU_BIN}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

    @property
    def mark(self) -> str:
        return f"{MARK}={self.instance}"

    @property
    def container_cgroup(self) -> str:
        """Where the engines put containers that ask for no other place."""
        return f"/stopgap-bed/{self.instance}"

    @property
    def segment_cgroup(self) -> str:
        """Where stopgap puts the segments of this bed."""
        return f"/stopgap/{self.instance}"

    def node(self, name: str) -> Path:
        return self.root / "nodes" / name

    def engine(self, name: str) -> str:
        return f"unix://{self.node(name)}/docker.sock"

    def install_dir(self, name: str) -> Path:
        return self.node(name) / "stopgap"

    def owner_alive(self) -> bool:
        if self.owner is None:
            return True
        pid, started = self.owner
        return Process(pid=pid, started=started).alive()

    def save(self) -> None:
        """Write the layout into the bed, so that it can be torn down without this program."""
        known = asdict(self) | {"root": str(self.root)}
        fresh = self.root / "bed.json.new"
        fresh.write_text(json.dumps(known))
        fresh.rename(self.root / "bed.json")


def load(root: Path) -> Layout:
    """
    Return the layout of the bed under a root.

    Raises:
        FileNotFoundError: there is no bed.
    """
    known = json.loads((root / "bed.json").read_text())
    owner = known["owner"]
    return Layout(
        root=Path(known["root"]),
        instance=known["instance"],
        nodes=tuple(known["nodes"]),
        ports=known["ports"],
        owner=tuple(owner) if owner else None,
    )


def fresh(root: Path, *, nodes: int, owned: bool) -> Layout:
    """Return the layout of a new bed, with ports that nobody uses."""
    names = tuple(f"n{number}" for number in range(1, nodes + 1))
    me = identify(os.getpid())
    return Layout(
        root=root,
        instance=f"bed-{random.randbytes(4).hex()}",  # noqa: S311  # a name, no secret
        nodes=names,
        ports=_free_ports(("slurmctld", "hook", *names)),
        owner=(me.pid, me.started) if owned and me else None,
    )


def _free_ports(names: tuple[str, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    while len(found) < len(names):
        port = random.choice(_PORTS)  # noqa: S311  # a number, no secret
        if port not in found.values() and _is_free(port):
            found[names[len(found)]] = port
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
