"""Processes that can be found again: who they are, which ones a bed has started.

A process is a pid and its start time, so that a number used again is not mistaken
for it.
"""

import os
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

#: The process writes itself down before it becomes the program: there is no moment at
#: which it runs and is not recorded, whatever happens to the bed.
_RECORD = (
    'read -r stat </proc/$$/stat && printf "%s %s\\n" "$0" "$stat" >>"$1" && shift && exec "$@"'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process, for as long as it lives."""

    pid: int
    #: Clock ticks since boot, field 22 of ``/proc/<pid>/stat``.
    started: int
    #: What the bed calls it; empty for a process that was found otherwise.
    name: str = ""

    def alive(self) -> bool:
        """Return whether it still runs; a zombie does not, unless threads of it do."""
        fields = _stat_fields(_read(Path(f"/proc/{self.pid}/stat")))
        if not fields or int(fields[19]) != self.started:
            return False
        return fields[0] not in "ZX" or int(fields[17]) > 1

    def reaped(self) -> bool:
        """Return whether its number is free again: to many programs a zombie is alive."""
        now = identify(self.pid)
        return now is None or now.started != self.started

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal, unless it has gone."""
        if self.alive():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return


def start(
    name: str, argv: Sequence[str], *, registry: Path, env: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, recorded in the registry."""
    with log.open("ab") as sink:
        return subprocess.Popen(
            ["/bin/sh", "-c", _RECORD, name, str(registry), *argv],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def recorded(registry: Path) -> list[Process]:
    """Return everything that was ever started, oldest first, dead or alive."""
    if not registry.exists():
        return []
    found = []
    for line in registry.read_text().splitlines():
        name, _, stat = line.partition(" ")
        if fields := _stat_fields(stat):
            pid = int(stat.split(" ", 1)[0])
            found.append(Process(pid=pid, started=int(fields[19]), name=name))
    return found


def everybody() -> Iterator[Process]:
    """Yield every process of the machine except the asking one."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            process = identify(int(entry.name))
            if process is not None:
                yield process


def identify(pid: int) -> Process | None:
    """Return the process that has this number now."""
    fields = _stat_fields(_read(Path(f"/proc/{pid}/stat")))
    return Process(pid=pid, started=int(fields[19])) if fields else None


def command(process: Process) -> tuple[str, ...]:
    """Return the arguments of a process; none for the kernel's and the gone."""
    return tuple(part for part in _read(Path(f"/proc/{process.pid}/cmdline")).split("\0") if part)


def environment(process: Process) -> frozenset[str]:
    """Return the ``NAME=value`` entries a process was started with."""
    return frozenset(_read(Path(f"/proc/{process.pid}/environ")).split("\0"))


def cgroup_paths(process: Process) -> frozenset[str]:
    """Return the paths of a process in all cgroup hierarchies."""
    lines = _read(Path(f"/proc/{process.pid}/cgroup")).splitlines()
    return frozenset(line.split(":", 2)[2] for line in lines if line.count(":") >= 2)


def descendants(roots: Iterable[Process]) -> list[Process]:
    """Return all children of the given processes, and theirs."""
    children: dict[int, list[Process]] = {}
    for process in everybody():
        fields = _stat_fields(_read(Path(f"/proc/{process.pid}/stat")))
        if fields:
            children.setdefault(int(fields[1]), []).append(process)
    found: list[Process] = []
    waiting = list(roots)
    while waiting:
        below = children.get(waiting.pop().pid, [])
        found += below
        waiting += below
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _stat_fields(stat: str) -> list[str]:
    """Return the fields from the third on: the second may hold blanks and brackets."""
    return stat.rpartition(")")[2].split()
