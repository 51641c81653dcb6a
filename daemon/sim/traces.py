"""Opens a trace, plain or gzip, and finds out what it is."""

import gzip
import io
import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path

from daemon.sim import accounting, samples, swf
from daemon.sim.workload import Shape, Trace, TraceError


class Format(StrEnum):
    """What a trace is written in."""

    SWF = "swf"
    SACCT = "sacct"
    PBS = "pbs"
    IDLE_SAMPLES = "idle-samples"


_MAGIC = b"\x1f\x8b"
_HEAD = 50


def load(path: Path, form: Format | None = None, shape: Shape | None = None) -> Trace:
    """
    Return what is in a file; the format is guessed when none is given.

    Raises:
        TraceError: it cannot be read, or makes no sense.
    """
    shape = shape or Shape()
    try:
        with path.open("rb") as raw:
            packed = raw.read(len(_MAGIC)) == _MAGIC
        with gzip.open(path, "rb") if packed else path.open("rb") as file:
            lines = io.TextIOWrapper(file, encoding="utf-8", errors="replace")  # type: ignore[arg-type, unused-ignore]  # both are binary files
            return _read(path.name, lines, form, shape)
    except (OSError, EOFError) as exc:
        raise TraceError(f"{path} cannot be read: {exc}") from exc


def _read(name: str, lines: Iterable[str], form: Format | None, shape: Shape) -> Trace:
    rest = iter(lines)
    head = list(islice(rest, _HEAD))
    whole: Iterator[str] = chain(head, rest)
    match form or guess(name, head):
        case Format.SWF:
            return swf.read(name, whole, shape)
        case Format.SACCT:
            return accounting.read_sacct(name, whole, shape)
        case Format.PBS:
            return accounting.read_pbs(name, whole, shape)
        case Format.IDLE_SAMPLES:
            return samples.read(name, whole, shape.cores_per_node or 1)


def guess(name: str, head: list[str]) -> Format:
    """
    Return the format that the first lines are in.

    Raises:
        TraceError: none is plain.
    """
    filled = [line for line in head if line.strip()]
    if filled and "|" in filled[0] and "Submit" in filled[0]:
        return Format.SACCT
    if any(re.match(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;\w;", line) for line in filled):
        return Format.PBS
    if any(line.strip() == "----" for line in filled) and filled[0].strip().isdigit():
        return Format.IDLE_SAMPLES
    data = [line for line in filled if not line.startswith(";")]
    if any(line.startswith(";") for line in filled) or (data and len(data[0].split()) == 18):
        return Format.SWF
    formats = ", ".join(Format)
    raise TraceError(f"what {name} is written in is not plain; say --format, one of {formats}")
