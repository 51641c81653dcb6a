"""The bed's cgroups: who is in them, and how they are emptied."""

from collections.abc import Iterable
from pathlib import Path

from tests.testbed.processes import Process, cgroup_paths, everybody

_ROOT = Path("/sys/fs/cgroup")


def members(path: str) -> dict[str, list[Process]]:
    """Return the processes below a cgroup path, by the full path of their cgroup."""
    found: dict[str, list[Process]] = {}
    for process in everybody():
        for place in cgroup_paths(process):
            if is_below(place, path) and process.alive():
                found.setdefault(place, []).append(process)
    return found


def is_below(place: str, path: str) -> bool:
    """Return whether a cgroup path is another one or lies below it."""
    return place == path or place.startswith(f"{path}/")


def folders(path: str) -> list[Path]:
    """Return the directories of a cgroup and of those below it, innermost first."""
    found: list[Path] = []
    for hierarchy in _hierarchies():
        top = hierarchy / path.lstrip("/")
        if top.is_dir():
            found += [top, *(entry for entry in top.rglob("*") if entry.is_dir())]
    return sorted(found, key=lambda folder: len(folder.parts), reverse=True)


def thaw(path: str) -> None:
    """Thaw a cgroup and everything below it, outermost first."""
    for folder in reversed(folders(path)):
        _write(folder / "freezer.state", "THAWED")
        _write(folder / "cgroup.freeze", "0")


def remove(path: str) -> None:
    """Remove a cgroup and what is below it; what is in use stays."""
    _rmdir(folders(path))


def remove_if_empty(path: str) -> None:
    """Remove a cgroup that several beds share, unless another one uses it."""
    _rmdir(hierarchy / path.lstrip("/") for hierarchy in _hierarchies())


def _hierarchies() -> list[Path]:
    if (_ROOT / "cgroup.controllers").exists():
        return [_ROOT]
    return [entry for entry in _ROOT.iterdir() if entry.is_dir() and not entry.is_symlink()]


def _rmdir(found: Iterable[Path]) -> None:
    for folder in found:
        try:
            folder.rmdir()
        except OSError:
            continue


def _write(path: Path, word: str) -> None:
    try:
        path.write_text(word)
    except OSError:
        return
