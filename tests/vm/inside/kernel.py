"""What lives on the two nodes, read from the kernel alone: cgroup v2 and /proc."""

from dataclasses import dataclass
from pathlib import Path

_TREE = Path("/sys/fs/cgroup")
_INSTANCE = "vm"
#: The shim's own leaf; what is there is the node's, not the job's.
_SHIM = "stopgap-shim"
_STATUS = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb",
           "NoNewPrivs", "Seccomp")  # fmt: skip
_LIMITS = ("memory.max", "memory.swap.max", "pids.max", "cpu.max", "cpu.weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One segment that has processes."""

    node: str
    job: int
    epoch: int
    #: The container's cgroup.
    place: str
    pids: tuple[int, ...]

    @property
    def container(self) -> str:
        """The number of the container that the cgroup is of."""
        return self.place.rpartition("/")[2].removeprefix("docker-").removesuffix(".scope")

    @property
    def limits(self) -> dict[str, str]:
        """What the kernel holds the segment to."""
        return {name: _read(_TREE / self.place.lstrip("/") / name).strip() for name in _LIMITS}

    @property
    def rights(self) -> set[tuple[str, ...]]:
        """What each process may do; one entry when all may the same."""
        # What has ended meanwhile says nothing.
        return {rights for pid in self.pids if (rights := _rights(pid))}

    @property
    def own_cgroup_space(self) -> bool:
        """Whether the processes see their own cgroup as the root of all."""
        return _space(1) not in {_space(pid) for pid in self.pids}

    @property
    def where(self) -> set[str]:
        """The cgroups that the processes say they are in."""
        said = {_read(Path(f"/proc/{pid}/cgroup")).strip().removeprefix("0::") for pid in self.pids}
        return said - {""}


def segments() -> list[Segment]:
    """Return every segment of a job that has processes, with either of Docker's drivers."""
    found = []
    for place in sorted(_containers()):
        parts = _identify(place.parent)
        pids = tuple(int(pid) for pid in _read(place / "cgroup.procs").split())
        if parts and pids:
            node, job, epoch = parts
            path = f"/{place.relative_to(_TREE)}"
            found.append(Segment(node=node, job=job, epoch=epoch, place=path, pids=pids))
    return found


def strays() -> list[str]:
    """Return the cgroups below ours that have processes and are of no segment."""
    known = {segment.place for segment in segments()}
    places = [
        f"/{place.relative_to(_TREE)}" for place in _containers() if _read(place / "cgroup.procs")
    ]
    return [place for place in places if place not in known]


def remains(node: str) -> list[str]:
    """Return the cgroups of a node's segments, with processes or without."""
    slices = (_TREE / "stopgap.slice").glob(f"stopgap-{_INSTANCE}.{node}.*.slice")
    plain = (_TREE / "stopgap" / _INSTANCE / node).glob("*/")
    return sorted(place.name for place in (*slices, *plain))


def _containers() -> list[Path]:
    slices = _TREE.glob("stopgap.slice/stopgap-*.slice/*/")
    plain = _TREE.glob(f"stopgap/{_INSTANCE}/*/*/*/")
    return [place for place in (*slices, *plain) if place.name != _SHIM]


def _identify(parent: Path) -> tuple[str, int, int] | None:
    if parent.suffix == ".slice":
        words = parent.stem.removeprefix(f"stopgap-{_INSTANCE}.").split(".")
    else:
        words = [parent.parent.name, *parent.name.split(".")]
    if len(words) == 3 and words[1].isdigit() and words[2].isdigit():
        return words[0], int(words[1]), int(words[2])
    return None


def _rights(pid: int) -> tuple[str, ...]:
    lines = _read(Path(f"/proc/{pid}/status")).splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    known = [(name, fields.get(name, "").split()) for name in _STATUS]
    return tuple(" ".join([name, *words]) for name, words in known) if fields else ()


def _space(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/cgroup").readlink())
    except OSError:
        return ""


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
