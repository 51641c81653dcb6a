"""Where everything of one bed lies, and what is known about the bed from outside."""

import fcntl
import json
import os
import random
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.testbed.paths import CRIU_BIN, NOTES, OWNED
from tests.testbed.processes import Process, identify

#: Marks every process of a bed in its environment, so that what has lost its parent
#: is still found.  Nothing that a person starts in a bed's shell carries it.
MARK = "BED_MARK"

#: Where all beds of a machine have theirs: stopgap's segments, and all other containers.
SHARED_CGROUPS = ("/stopgap", "/stopgap-bed")

_PREFIX = "stopgap-bed-"

#: Below the range from which the kernel gives out ports by itself.
_PORTS = range(17000, 32000)

#: A socket's path has 107 bytes; the longest name below a root is containerd's.
_LONGEST_ROOT = 107 - len("/nodes/n99/exec/containerd/containerd.sock.ttrpc")


class LayoutError(Exception):
    """There can be no bed at this place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The names, numbers and places of one bed."""

    root: Path
    #: Unique among the beds of a machine: names cgroups.
    instance: str
    nodes: tuple[str, ...]
    #: By component: ``slurmctld``, ``hook`` and each node's slurmd.
    ports: dict[str, int] = field(default_factory=dict)
    #: Nodes whose engine is another Debian release's, by its suite.
    releases: dict[str, str] = field(default_factory=dict)
    #: The program whose bed this is, as pid and start time; it ends with that program.
    owner: tuple[int, int] | None = None
    #: Recorded process numbers mean nothing after another boot.
    boot: str = ""

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
    def tmp(self) -> Path:
        return self.root / "tmp"

    @property
    def node_path(self) -> str:
        """The PATH of everything that runs on nodes, the private CRIU first."""
        return f"{CRIU_BIN}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

    @property
    def mark(self) -> str:
        return f"{MARK}={self.instance}"

    @property
    def cgroups(self) -> tuple[str, str]:
        """Where stopgap puts segments, and where engines put all other containers."""
        segments, others = SHARED_CGROUPS
        return f"{segments}/{self.instance}", f"{others}/{self.instance}"

    def node(self, name: str) -> Path:
        return self.root / "nodes" / name

    def engine(self, name: str) -> str:
        return f"unix://{self.node(name)}/docker.sock"

    def install_dir(self, name: str) -> Path:
        return self.node(name) / "stopgap"

    @property
    def orphaned(self) -> bool:
        """Whether the program whose bed this is has gone."""
        if self.owner is None:
            return False
        pid, started = self.owner
        return self.boot != boot_id() or not Process(pid=pid, started=started).alive()

    def save(self) -> None:
        """Write the layout into the bed, so that it can be torn down without this program."""
        known = asdict(self) | {"root": str(self.root)}
        fresh = self.root / "bed.json.new"
        fresh.write_text(json.dumps(known))
        fresh.rename(self.root / "bed.json")


def reserve(
    *, nodes: int, note: Path | None = None, releases: Mapping[str, str] | None = None
) -> Layout:
    """
    Make the root of a new bed, after noting where it is; nothing is started.

    Without a note of its own the bed belongs to this program, and is noted among
    the owned ones.

    Raises:
        LayoutError: the folder for beds has too long a name.
    """
    instance = f"bed-{os.urandom(4).hex()}"
    names = tuple(f"n{number}" for number in range(1, nodes + 1))
    root = _base() / f"{_PREFIX}{instance.removeprefix('bed-')}"
    if len(str(root)) > _LONGEST_ROOT:
        raise LayoutError(f"{root.parent}: too long for sockets, set STOPGAP_BED_ROOT to another")
    me = identify(os.getpid())
    known = Layout(
        root=root,
        instance=instance,
        nodes=names,
        ports=_free_ports(("slurmctld", "hook", *names)),
        releases=dict(releases or {}),
        owner=(me.pid, me.started) if note is None and me else None,
        boot=boot_id(),
    )
    note = note or note_of(known)
    with notes_locked():
        note.write_text(str(root))
        root.mkdir(parents=True)
        # Slurm and munge refuse folders below one that others cannot pass.
        root.chmod(0o755)
        known.save()
    return known


@contextmanager
def notes_locked() -> Iterator[None]:
    """Keep others from making or clearing notes; what is noted is then complete."""
    OWNED.mkdir(parents=True, exist_ok=True)
    with (NOTES / "notes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def note_of(known: Layout) -> Path:
    """Return where an owned bed is noted."""
    return OWNED / known.instance


def load(note: Path) -> Layout | None:
    """Return the bed that a note names; nothing if there is none."""
    try:
        known = json.loads((Path(note.read_text()) / "bed.json").read_text())
    except FileNotFoundError:
        return None
    owner = known["owner"]
    return Layout(
        root=Path(known["root"]),
        instance=known["instance"],
        nodes=tuple(known["nodes"]),
        ports=known["ports"],
        owner=(owner[0], owner[1]) if owner else None,
        boot=known.get("boot", boot_id()),
        releases=known.get("releases", {}),
    )


def clear(note: Path) -> None:
    """Forget a bed that was killed before anything of it was started; notes must be locked."""
    if not note.exists() or load(note) is not None:
        return
    root = Path(note.read_text())
    if root.name.startswith(_PREFIX):
        shutil.rmtree(root, ignore_errors=True)
    note.unlink()


def boot_id() -> str:
    """Return what distinguishes this boot of the machine from all others."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _base() -> Path:
    """Return the folder for beds: engines and checkpoints need a real disk."""
    if chosen := os.environ.get("STOPGAP_BED_ROOT"):
        return Path(chosen).resolve()
    in_memory = {
        line.split()[1]
        for line in Path("/proc/mounts").read_text().splitlines()
        if line.split()[2] == "tmpfs"
    }
    return Path("/var/tmp" if "/tmp" in in_memory else "/tmp")  # noqa: S108  # own name below


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
