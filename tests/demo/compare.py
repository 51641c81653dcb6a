"""Whether two runs of a program left the same, and where they differ first."""

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.demo.catalogue import Program
from tests.demo.references import Run

_SHOWN = 60


def differences(program: Program, reference: Run, run: Run) -> list[str]:
    """Return what differs between two runs, one line each; nothing when they are identical."""
    found = []
    if reference.exit_code != run.exit_code:
        found.append(f"exit code {reference.exit_code} expected, {run.exit_code} found")
    for prefix in program.streams:
        name = f"lines with {prefix.decode()!r} of the log" if prefix else "the log"
        expected, actual = (_stream(one.log, program, prefix) for one in (reference, run))
        found += _first(name, expected, actual)
    here, there = (sorted(p.name for p in one.folder.iterdir()) for one in (run, reference))
    if here != there:
        found.append(f"files {there} expected, {here} found")
        return found
    for name in program.files:
        found += _first(name, *(one.folder.joinpath(name).read_bytes() for one in (reference, run)))
    for name in program.databases:
        found += _first(name, *(_dump(one.folder / name) for one in (reference, run)))
    return found


def _stream(log: bytes, program: Program, prefix: bytes) -> bytes:
    """Return the lines of one stream, and those of none with the first."""
    if program.streams == (b"",):
        return log
    lines = log.splitlines(keepends=True)
    if prefix == program.streams[0]:
        others = program.streams[1:]
        return b"".join(line for line in lines if not line.startswith(others))
    return b"".join(line for line in lines if line.startswith(prefix))


def _dump(path: Path) -> bytes:
    with closing(sqlite3.connect(path)) as database:
        (health,) = database.execute("PRAGMA integrity_check").fetchone()
        return "\n".join([health, *database.iterdump()]).encode()


def _first(name: str, expected: bytes, actual: bytes) -> list[str]:
    """Return where two texts differ first."""
    if expected == actual:
        return []
    pairs = zip(expected, actual, strict=False)
    shorter = min(len(expected), len(actual))
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), shorter)
    line = expected[:at].count(b"\n") + 1
    begin = max(0, at - _SHOWN // 2)
    wanted, found = (text[begin : begin + _SHOWN] for text in (expected, actual))
    where = f"byte {at} (line {line}) of {len(expected)}, {len(actual)} found"
    return [f"{name} differs from {where}: {wanted!r} expected, {found!r} found"]
