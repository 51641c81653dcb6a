"""Accounting exports: what sacct prints with --parsable2, and PBS's accounting logs."""

import csv
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from daemon.sim.workload import Rows, Shape, TraceError, Workload, assemble

_TIME = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?")
#: What a job without a limit is planned for, as sacct says it.
_YEAR = 365 * 86400.0


def read_sacct(name: str, lines: Iterable[str], shape: Shape) -> Workload:
    """
    Return the jobs of ``sacct --allusers --allocations --parsable2 --format=…``.

    Needed are JobID (or JobIDRaw), Submit, Start, End (or ElapsedRaw), Timelimit (or
    TimelimitRaw), and AllocCPUS (or AllocNodes or NNodes); others are welcome.

    Raises:
        TraceError: a column is missing, or a line makes no sense.
    """
    rows = Rows()
    table = csv.reader(lines, delimiter="|", quoting=csv.QUOTE_NONE)
    heads = next(table, [])
    for number, cells in enumerate(table, 2):
        row = dict(zip(heads, cells, strict=False))
        try:
            _add_sacct(rows, row)
        except KeyError as exc:
            raise TraceError(
                f"{name} has no column {exc.args[0]}; export it with sacct --allusers "
                "--allocations --parsable2 "
                "--format=JobIDRaw,Submit,Start,End,AllocCPUS,AllocNodes,Timelimit"
            ) from exc
        except ValueError as exc:
            raise TraceError(f"{name}, line {number} is not sacct's: {exc}") from exc
    return assemble(name, rows, shape)


def _add_sacct(rows: Rows, row: Mapping[str, str]) -> None:
    job = _first(row, "JobIDRaw", "JobID")
    if "." in job:
        # A step of a job that has a row of its own.
        return
    start = row["Start"]
    if not start[:1].isdigit():
        # It never started.
        rows.dropped += 1
        return
    began = _stamp(start)
    if "ElapsedRaw" in row:
        runtime = float(row["ElapsedRaw"] or 0)
    elif row["End"][:1].isdigit():
        runtime = _stamp(row["End"]) - began
    else:
        runtime = 0.0
    submit = min(_stamp(row["Submit"]), began)
    processors = int(_first(row, "AllocCPUS", "AllocNodes", "NNodes") or 0)
    rows.add(
        job,
        submit=submit,
        processors=processors,
        runtime=runtime,
        limit=_limit(row),
        began=began,
    )


def _limit(row: Mapping[str, str]) -> float:
    text = _first(row, "TimelimitRaw", "Timelimit")
    if "TimelimitRaw" in row and text.isdigit():
        return float(text) * 60
    return _seconds(text) if text[:1].isdigit() else _YEAR


def _first(row: Mapping[str, str], *names: str) -> str:
    for name in names:
        if name in row:
            return row[name]
    raise KeyError(names[0])


def _stamp(text: str) -> float:
    """Read a local time as if it were UTC: only differences count."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def _seconds(text: str) -> float:
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no time")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(days * 86400 + hours * 3600 + minutes * 60 + seconds)


_PBS_LINE = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;(\w);([^;]*);(.*)")
_PBS_PAIR = re.compile(r"([\w.]+)=(\"[^\"]*\"|\S*)")


def read_pbs(name: str, lines: Iterable[str], shape: Shape) -> Workload:
    """
    Return the jobs whose ends (records E) are in accounting logs of PBS.

    Raises:
        TraceError: a line makes no sense.
    """
    rows = Rows()
    for number, line in enumerate(lines, 1):
        found = _PBS_LINE.match(line)
        if found is None or found[1] != "E":
            continue
        try:
            _add_pbs(rows, found[2], dict(_PBS_PAIR.findall(found[3])))
        except (KeyError, ValueError) as exc:
            raise TraceError(f"{name}, line {number} is not of PBS: {exc!r}") from exc
    return assemble(name, rows, shape)


def _add_pbs(rows: Rows, job: str, pairs: Mapping[str, str]) -> None:
    began = float(pairs["start"])
    submit = float(pairs.get("qtime") or pairs.get("ctime") or began)
    asked = pairs.get("Resource_List.walltime", "")
    processors = int(pairs.get("Resource_List.ncpus") or pairs.get("Resource_List.nodect") or 0)
    rows.add(
        job,
        submit=min(submit, began),
        processors=processors,
        runtime=float(pairs["end"]) - began,
        limit=_seconds(asked) if asked else _YEAR,
        began=began,
    )
