"""How answers are printed: JSON as it came, or tables for people."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typer

from daemon.cli import units


def emit(document: Any) -> None:
    """Print an answer as one line of JSON."""
    typer.echo(json.dumps(document, ensure_ascii=False))


def say(text: str) -> None:
    """Print one line."""
    typer.echo(clean(text))


def complain(error: str, hint: str = "") -> None:
    """Print what went wrong, and what to try next, on stderr."""
    typer.echo(f"stopgap: {clean(error)}", err=True)
    if hint:
        typer.echo(f"  {clean(hint)}", err=True)


def clean(text: str) -> str:
    """Take out what would steer a terminal: some of it comes from programs on the nodes."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table, in colours on a terminal, in plain columns elsewhere."""
    cells = [[clean(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _rich_table(heads, cells)
    else:
        _plain_table([list(heads), *cells])


def _rich_table(heads: Sequence[str], rows: list[list[str]]) -> None:
    from rich.console import Console  # noqa: PLC0415  not loaded where nobody watches
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for head in heads:
        drawn.add_column(head, overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    Console(highlight=False).print(drawn)


_STYLES = {
    "running": "green",
    "completed": "green",
    "idle": "green",
    "evicting": "yellow",
    "resuming": "yellow",
    "starting": "yellow",
    "parked": "cyan",
    "held": "magenta",
    "failed": "red",
    "timed_out": "red",
    "unreachable": "red",
    "unknown": "red",
    "unavailable": "dim",
    "cancelled": "dim",
}


def _plain_table(rows: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo(line.rstrip())


def fields(pairs: Mapping[str, Any]) -> None:
    """Print named values, a line each; what is empty is left out."""
    shown = {name: str(value) for name, value in pairs.items() if value not in (None, "", [])}
    width = max(map(len, shown), default=0)
    for name, value in shown.items():
        say(f"{name.ljust(width)}  {value}")


def queue(jobs: Iterable[Mapping[str, Any]]) -> None:
    """Print jobs, a line each."""
    heads = ("ID", "NAME", "USER", "STATE", "NODE", "CPUS", "MEM", "RAN", "MOVES", "REASON")
    table(
        heads,
        (
            (
                str(job["id"]),
                job["name"],
                job["user"],
                job["state"],
                job["node"] or "-",
                str(job["cpus"]),
                units.show_memory(job["mem_mib"]),
                units.show_time(job["run_seconds"]),
                str(job["migrations"]),
                job["reason"],
            )
            for job in jobs
        ),
    )


def nodes(found: Iterable[Mapping[str, Any]]) -> None:
    """Print nodes, a line each."""
    heads = ("NODE", "STATE", "CPUS", "MEM", "FIT", "JOBS", "CLAIM", "REASON")
    table(
        heads,
        (
            (
                node["name"],
                node["state"],
                str(node["cpus"]),
                units.show_memory(node["memory_mib"]),
                _fitness(node),
                ",".join(map(str, node["jobs"])) or "-",
                ", ".join(claim["source"] for claim in node["claims"]) or "-",
                node["reason"],
            )
            for node in found
        ),
    )


def _fitness(node: Mapping[str, Any]) -> str:
    if not node["reachable"]:
        return "away"
    return "yes" if node["fit"] else "no"


def job(found: Mapping[str, Any]) -> None:
    """Print one job with its history."""
    plain = {name: value for name, value in found.items() if not isinstance(value, list | dict)}
    plain["command"] = " ".join(found["command"])
    plain["mem_mib"] = units.show_memory(found["mem_mib"])
    for name in ("run_seconds", "lost_seconds", "time_seconds"):
        if found.get(name) is not None:
            plain[name] = units.show_time(found[name])
    plain["mounts"] = " ".join(
        f"{mount['source']}:{mount['target']}{':ro' if mount['read_only'] else ''}"
        for mount in found["mounts"]
    )
    fields(plain)
    for line in found.get("changed_files", ()):
        say(f"! {line}")
    for title, heads in _HISTORY.items():
        rows = found[title][-_ROWS:]
        if rows:
            # Only on some sites checkpoints lie on nodes.
            told = [head for head in heads if any(row.get(head) != [] for row in rows)]
            say("")
            table(
                [head.upper() for head in told],
                ([_cell(head, row.get(head)) for head in told] for row in rows),
            )
        if len(rows) < len(found[title]):
            say(f"the last {len(rows)} of {len(found[title])} {title}; --json has all")


#: A job of months has thousands of checkpoints.
_ROWS = 50
_HISTORY = {
    "segments": ("epoch", "node", "started", "ended", "outcome", "resumed_from"),
    "checkpoints": (
        "generation",
        "time",
        "bytes",
        "written_bytes",
        "seconds",
        "kind",
        "nodes",
    ),
    "events": ("time", "event", "state", "reason"),
}


def _cell(head: str, value: Any) -> str:
    if value is None or value == []:
        return "-"
    if isinstance(value, list):
        return ",".join(value)
    return units.show_bytes(value) if head.endswith("bytes") else str(value)
