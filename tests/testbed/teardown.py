"""Ending a bed, however little of it is left to ask.

Nothing here trusts a program of the bed: processes are found by the registry, by the
mark in their environment, by their parents, by their cgroups, and by the address of
the containerd that a shim was started for.
"""

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.testbed import cgroups
from tests.testbed.layout import Layout, boot_id
from tests.testbed.processes import (
    Process,
    cgroup_paths,
    command,
    descendants,
    environment,
    everybody,
    recorded,
)
from tests.testbed.waiting import TookTooLongError, wait_until

#: containerd puts the sockets of all shims of a machine into one folder.
_SHIM_SOCKETS = Path("/run/containerd/s")


class LeftoversError(Exception):
    """Something of the bed survived its end."""


def tear_down(bed: Layout) -> None:
    """
    End everything of a bed and remove its root.

    Raises:
        LeftoversError: something is still there.
    """
    sockets = _shim_sockets(bed)
    _end_processes(bed)
    for place in bed.cgroups:
        cgroups.remove(place)
    _unmount(bed.root)
    for path in sockets:
        path.unlink(missing_ok=True)
    left = leftovers(bed)
    if left:
        raise LeftoversError("; ".join(left))
    _remove(bed.root)


def _remove(root: Path) -> None:
    """Remove a root, again and again: the kernel may still be at the end of what was there."""

    def removed() -> bool:
        _unmount(root)
        shutil.rmtree(root, ignore_errors=True)
        return not root.exists()

    try:
        wait_until(removed, 20, f"{root} to be removed", every=0.2)
    except TookTooLongError as exc:
        left = [str(path) for path in root.rglob("*")][:5]
        raise LeftoversError(f"{root} cannot be removed: {left}") from exc


def leftovers(bed: Layout) -> list[str]:
    """Return what of a bed is on the machine besides files, one line each."""
    running = [
        f"process {found.pid} {' '.join(command(found))[:100]}" for found in processes_of(bed)
    ]
    held = [f"cgroup {folder}" for place in bed.cgroups for folder in cgroups.folders(place)]
    return running + held + [f"mount {point}" for point in _mounts(bed.root)]


def processes_of(bed: Layout) -> list[Process]:
    """Return every living process of a bed."""
    same_boot = bed.boot == boot_id()
    known = {(p.pid, p.started) for p in recorded(bed.registry) if same_boot}
    roots = [
        process
        for process in everybody()
        if (process.pid, process.started) in known or _belongs(bed, process)
    ]
    found = {process.pid: process for process in [*roots, *descendants(roots)]}
    # A bed may be ended from one of its own jobs, or by a child of its own daemon.
    found.pop(os.getpid(), None)
    return [process for process in found.values() if process.alive()]


def _belongs(bed: Layout, process: Process) -> bool:
    places = cgroup_paths(process)
    if any(cgroups.is_below(place, own) for place in places for own in bed.cgroups):
        return True
    entries = environment(process)
    if bed.mark in entries:
        return True
    # A batch job that has left the tree of its slurmstepd.
    batch = any(entry.startswith("SLURM_JOB_ID=") for entry in entries)
    if batch and f"SLURM_CONF={bed.slurm_conf}" in entries:
        return True
    words = command(process)
    return "-address" in words and any(word.startswith(f"{bed.root}/") for word in words)


def _end_processes(bed: Layout) -> None:
    """Kill in rounds: a dying engine may still start something."""

    def none_left() -> bool:
        for place in bed.cgroups:
            cgroups.thaw(place)
        found = processes_of(bed)
        for process in found:
            process.kill()
        return not found

    try:
        wait_until(none_left, 30, "the bed's processes to end", every=0.05)
    except TookTooLongError as exc:
        raise LeftoversError("; ".join(leftovers(bed))) from exc


def _mounts(root: Path) -> list[str]:
    """Return the mount points under a root, innermost and latest first."""
    points = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), line.split(" ")[4])
        if point.startswith(f"{root}/"):
            points.append(point)
    return points[::-1]


def _unmount(root: Path) -> None:
    for point in _mounts(root):
        answer = subprocess.run(["umount", point], capture_output=True, check=False)
        if answer.returncode:
            subprocess.run(["umount", "--lazy", point], capture_output=True, check=False)


def _shim_sockets(bed: Layout) -> set[Path]:
    """Return the sockets of all shims that this bed has had."""
    return {path for path in {*_told_sockets(bed), *_derived_sockets(bed)} if path.exists()}


def _told_sockets(bed: Layout) -> Iterator[Path]:
    for told in bed.root.glob("nodes/*/exec/containerd/daemon/*/*/*/address"):
        yield Path(told.read_text().removeprefix("unix://"))


def _derived_sockets(bed: Layout) -> Iterator[Path]:
    """containerd names a shim's socket after its own address and the container."""
    for node in bed.nodes:
        address = bed.node(node) / "exec/containerd/containerd.sock"
        for identifier in _containers(bed.node(node)):
            name = hashlib.sha256(f"{address}/moby/{identifier}".encode()).hexdigest()
            yield _SHIM_SOCKETS / name


def _containers(home: Path) -> Iterable[str]:
    known = home / "docker/containers"
    return [entry.name for entry in known.iterdir()] if known.is_dir() else []
