"""What lives on the nodes of a bed, read from the kernel alone, again and again."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.testbed import Bed

_ROOT = Path("/sys/fs/cgroup")
_UNIFIED = (_ROOT / "cgroup.controllers").exists()
_TREE = _ROOT if _UNIFIED else _ROOT / "freezer"
#: The shim's own place below a segment's cgroup: what is there is the node's, not the job's.
_SHIM = "stopgap-shim"
_PAUSE_SECONDS = 0.003


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """The processes of one segment at one moment."""

    node: str
    job: int
    epoch: int
    #: All of them, the shim's among them.
    pids: frozenset[int]
    #: Those of the job that the kernel may give a processor to.
    awake: frozenset[int]


def cgroup_of(bed: Bed, node: str, job: int, epoch: int) -> Path:
    """Return where a segment's processes are looked for."""
    return _TREE / bed.layout.cgroups[0].lstrip("/") / node / f"{job}.{epoch}"


def lives(bed: Bed) -> list[Life]:
    """Return every segment that has a cgroup on one of the nodes, empty ones too."""
    found = []
    for node in bed.nodes:
        top = _TREE / bed.layout.cgroups[0].lstrip("/") / node
        for name in _names(top):
            job, _, epoch = name.partition(".")
            if job.isdigit() and epoch.isdigit():
                pids, awake = _members(top / name)
                found.append(
                    Life(node=node, job=int(job), epoch=int(epoch), pids=pids, awake=awake)
                )
    return found


def _members(segment: Path) -> tuple[frozenset[int], frozenset[int]]:
    pids: set[int] = set()
    awake: set[int] = set()
    for name in _names(segment):
        here = [int(pid) for pid in _read(segment / name / "cgroup.procs").split()]
        pids.update(here)
        if here and name != _SHIM and not _is_frozen(segment / name):
            awake.update(pid for pid in here if _can_run(pid))
    return frozenset(pids), frozenset(awake)


def _is_frozen(place: Path) -> bool:
    if _UNIFIED:
        return "frozen 1" in _read(place / "cgroup.events")
    return _read(place / "freezer.state").strip() == "FROZEN"


def _can_run(pid: int) -> bool:
    """A stopped, a traced and a dead process run no instruction."""
    return _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split(" ")[1:2] not in (
        [], ["T"], ["t"], ["Z"], ["X"],
    )  # fmt: skip


def _names(place: Path) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(place) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


class Watcher:
    """Looks on from a thread of its own and notes every moment at which a job lived twice."""

    def __init__(self, bed: Bed) -> None:
        self._bed = bed
        self._over = threading.Event()
        self.looks = 0
        self.doubles: list[str] = []

    @classmethod
    @contextmanager
    def watching(cls, bed: Bed) -> Iterator["Watcher"]:
        """
        Watch during the block.

        Raises:
            AssertionError: two process trees of a job were alive at one time.
        """
        watcher = cls(bed)
        thread = threading.Thread(target=watcher._watch, name="watcher")
        thread.start()
        try:
            yield watcher
        finally:
            watcher._over.set()
            thread.join()
        assert not watcher.doubles, watcher.doubles[:10]
        assert watcher.looks > 10

    def _watch(self) -> None:
        while not self._over.wait(_PAUSE_SECONDS):
            self.looks += 1
            first = _awake(lives(self._bed))
            for job, segments in first.items():
                if len(segments) > 1:
                    self._look_again(job, segments)

    def _look_again(self, job: int, segments: dict[tuple[str, int], frozenset[int]]) -> None:
        """A look takes time: only what was there before and after it was there at one time."""
        still = _awake(lives(self._bed)).get(job, {})
        both = {place: pids & still.get(place, frozenset()) for place, pids in segments.items()}
        if sum(bool(pids) for pids in both.values()) > 1:
            self.doubles.append(f"look {self.looks}: job {job} lives in {both}")


def _awake(found: list[Life]) -> dict[int, dict[tuple[str, int], frozenset[int]]]:
    jobs: dict[int, dict[tuple[str, int], frozenset[int]]] = {}
    for life in found:
        if life.awake:
            jobs.setdefault(life.job, {})[(life.node, life.epoch)] = life.awake
    return jobs
