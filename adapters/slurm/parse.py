"""Slurm's text as records.  Pure; whatever the bytes, it answers or raises UnparsableError.

Only text that no user can write is asked for, in columns that are read by their
whole shape, so that a line is either understood or refused.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import hostlist

from adapters.base import UnparsableError
from adapters.records import lines, reading
from daemon.core.types import NodeName

NODES = ("scontrol", "show", "node", "--all", "--oneliner")
#: %A id, %T state, %S start or expected start, %N nodes it holds, %Y nodes it is
#: planned on.  No name, no reason: users write them, and can forge whole lines so.
JOB_FORMAT = "%A|%T|%S|%N|%Y"
#: --local: in a federation squeue lists the jobs of other clusters too.
JOBS = (
    "squeue",
    "--noheader",
    "--all",
    "--local",
    "--states=PENDING,CONFIGURING,RUNNING,SUSPENDED,STOPPED,COMPLETING,SIGNALING,RESIZING,STAGE_OUT",
    f"--format={JOB_FORMAT}",
)
RESERVATIONS = ("scontrol", "show", "reservation", "--all", "--oneliner")
CONFIG = ("scontrol", "show", "config")
VERSION = ("scontrol", "--version")

#: Free text starts here; operators write it, newlines included.  Nothing behind it is read.
_FREE_TEXTS = (" Reason=", " Comment=", " Extra=")
_KEYS = frozenset(
    {
        "NodeName",
        "ActiveFeatures",
        "AllocMem",
        "CPUAlloc",
        "CPUEfctv",
        "CPUTot",
        "MemSpecLimit",
        "Partitions",
        "RealMemory",
        "State",
    }
)
_RESERVATION = re.compile(r"\sReservationName=([\w.,-]{1,200})\s*$")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_NUMBER = re.compile(r"[0-9]{1,12}")
_STATE = re.compile(r"[A-Z][A-Z0-9_]*[*~#!%$@^+-]?(?:\+[A-Z][A-Z0-9_]*)*")
_JOB = re.compile(r"([0-9]{1,18})\|([A-Z_]+)\|([0-9]{1,12}|N/A|Unknown|NONE)\|([^|]*)\|([^|]*)")
_UPCOMING = re.compile(
    r"ReservationName=([\w.,-]{1,200}) StartTime=(\S+) EndTime=\S+ Duration=\S+ Nodes=(\S*) .*"
)
_NOWHERE = frozenset({"", "(null)", "N/A", "n/a", "None", "None assigned"})
#: The last moment of the year 9999.
_LAST_SECOND = 253402300799


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """A line of ``scontrol show node``."""

    name: NodeName
    #: Empty when the record contradicts itself.
    words: str
    cpus: int
    memory_mib: int
    allocated_cpus: int
    allocated_mib: int
    partitions: tuple[str, ...]
    features: tuple[str, ...]
    #: The name of the reservation that is on; 23.11 and newer tell it.
    reservation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A line of ``squeue``."""

    id: str
    state: str
    #: When it started, or is expected to; None is not known.
    start: datetime | None
    nodes: tuple[NodeName, ...]
    planned: tuple[NodeName, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationRecord:
    """A line of ``scontrol show reservation``."""

    name: str
    start: datetime
    nodes: tuple[NodeName, ...]


def parse_nodes(text: str) -> tuple[NodeRecord, ...]:
    """
    Read the answer to ``NODES``; nothing comes of an answer without nodes.

    Raises:
        UnparsableError: a record is not complete.
    """
    command = " ".join(NODES)
    if text.strip() in {"", "No nodes in the system"}:
        return ()
    records: dict[NodeName, NodeRecord] = {}
    in_free_text = False
    for number, line in lines(command, text):
        if not line.startswith("NodeName="):
            # A reason with a newline in it goes on here.  Somebody may even write a
            # whole record that way: then there are two of one name, see below.
            if line.strip() and not in_free_text:
                raise UnparsableError(command, f"line {number} is no node", sample=line)
            continue
        record = _node(command, number, line)
        in_free_text = len(_head(line)) < len(line)
        if record.name in records:
            record = replace(record, words="", reservation="")
        records[record.name] = record
    return tuple(records.values())


def parse_jobs(text: str) -> tuple[JobRecord, ...]:
    """
    Read the answer to ``JOBS``; an empty one is a queue without jobs.

    Raises:
        UnparsableError: a line is not understood.
    """
    command = JOBS[0]
    return tuple(
        _job(command, number, line)
        for number, line in lines(command, text)
        # Printed above the jobs of each cluster when clusters were named, even with
        # --noheader.
        if line and not line.startswith("CLUSTER: ")
    )


def parse_reservations(text: str) -> tuple[ReservationRecord, ...]:
    """
    Read the answer to ``RESERVATIONS``.

    Raises:
        UnparsableError: a line is not understood.
    """
    command = " ".join(RESERVATIONS)
    if text.strip() in {"", "No reservations in the system"}:
        return ()
    found: list[ReservationRecord] = []
    for number, line in lines(command, text):
        record = _UPCOMING.fullmatch(line)
        if record is not None:
            name, start, nodes = record.groups()
            moment = _moment(command, number, start)
            at = expand(command, nodes)
            found.append(ReservationRecord(name=name, start=moment, nodes=at))
        elif line.startswith("ReservationName=") or (line.strip() and not found):
            raise UnparsableError(command, f"line {number} is no reservation", sample=line)
        # Else a comment with a newline in it goes on: operators write them.
    return tuple(found)


def parse_version(text: str) -> str:
    """
    Read the answer to ``VERSION``, such as ``slurm-wlm 22.05.8``.

    Raises:
        UnparsableError: there is no version in it.
    """
    found = re.fullmatch(r"\S+ ([0-9]+(?:\.[0-9]+)+\S*)\s*", text)
    if found is None:
        raise UnparsableError(" ".join(VERSION), "there is no version", sample=text)
    return found[1]


def parse_config(text: str) -> Mapping[str, str]:
    """Read the answer to ``CONFIG``; a key with several values loses its index."""
    pairs: dict[str, str] = {}
    for line in text.splitlines():
        key, is_pair, value = line.partition("=")
        if is_pair:
            name = re.sub(r"\[\d+\]$", "", key.strip())
            pairs[name] = f"{pairs[name]},{value.strip()}" if name in pairs else value.strip()
    return pairs


def expand(command: str, expression: str) -> tuple[NodeName, ...]:
    """
    Take a host list such as ``n[1-3,7]`` apart.

    Raises:
        UnparsableError: it was cut off, or is no host list.
    """
    if expression in _NOWHERE:
        return ()
    try:
        # A plain list is by far the commonest, and python-hostlist is slow with it.
        simple = "[" not in expression and "]" not in expression
        names = expression.split(",") if simple else hostlist.expand_hostlist(expression)
    except hostlist.BadHostlist as exc:
        reason = f"a bad list of nodes ({exc})"
        raise UnparsableError(command, reason, sample=expression) from exc
    # The library forgives the comma at which a list was cut off.
    if expression.endswith(",") or not all(map(_NAME.fullmatch, names)):
        raise UnparsableError(command, "a bad list of nodes", sample=expression)
    return tuple(map(NodeName, names))


def _head(line: str) -> str:
    """Return the part of a record that Slurm alone has written."""
    found = [place for key in _FREE_TEXTS if (place := line.find(key)) >= 0]
    return line[: min(found)] if found else line


def _node(command: str, number: int, line: str) -> NodeRecord:
    # The kernel's version (OS=) has blanks in it: its words are no keys of ours.
    pairs = [p for word in _head(line).split() if (p := word.partition("="))[0] in _KEYS]
    fields = {key: value for key, _, value in pairs}
    contradicted = len(fields) < len(pairs)
    with reading(command, number, line):
        state, total = fields["State"], _count(fields["CPUTot"])
        reservation = _RESERVATION.search(line) if "ReservationName=" in line else None
        return NodeRecord(
            name=_name(fields["NodeName"]),
            words=state if _STATE.fullmatch(state) and not contradicted else "",
            # Without the cores and the memory that Slurm keeps for the system.
            cpus=_count(fields.get("CPUEfctv", str(total))),
            memory_mib=max(
                _count(fields["RealMemory"]) - _count(fields.get("MemSpecLimit", "0")), 0
            ),
            allocated_cpus=_count(fields["CPUAlloc"]),
            allocated_mib=_count(fields["AllocMem"]),
            partitions=_list(fields.get("Partitions", "")),
            features=_list(fields.get("ActiveFeatures", "")),
            reservation=reservation[1] if reservation else "",
        )


def _job(command: str, number: int, line: str) -> JobRecord:
    found = _JOB.fullmatch(line)
    if found is None:
        raise UnparsableError(command, f"line {number} is no job", sample=line)
    job, state, start, nodes, planned = found.groups()
    seconds = int(start) if start.isdigit() else None
    if seconds is not None and seconds > _LAST_SECOND:
        raise UnparsableError(command, f"line {number} has no moment", sample=line)
    return JobRecord(
        id=job,
        state=state,
        start=None if not seconds else datetime.fromtimestamp(seconds, UTC),
        nodes=expand(command, nodes),
        planned=expand(command, planned),
    )


def _moment(command: str, number: int, text: str) -> datetime:
    """Read seconds since 1970, or a moment without a zone: the programs run in UTC."""
    try:
        if text.isdigit():
            return datetime.fromtimestamp(min(int(text), _LAST_SECOND), UTC)
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError as exc:
        raise UnparsableError(command, f"line {number} has no moment", sample=text) from exc


def _name(text: str) -> NodeName:
    if _NAME.fullmatch(text) is None:
        raise ValueError(f"{text!r} for a name")
    return NodeName(text)


def _count(text: str) -> int:
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"{text!r} for a number")
    return int(text)


def _list(text: str) -> tuple[str, ...]:
    return () if text in _NOWHERE else tuple(text.split(","))
