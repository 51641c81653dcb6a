"""PBS's text as records.  Pure; whatever the bytes, it answers or raises UnparsableError.

One line is one vnode or one job, in fields that ``|`` separates.  Users' text is among
them and PBS mangles some of its bytes: whatever they write can make a node look less free,
never more.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from adapters.base import UnparsableError
from adapters.pbs import words
from adapters.pbs.values import (
    VNODE,
    count,
    fields,
    is_zero,
    listed,
    matched,
    mib,
    moment,
    pair,
    vnodes,
)
from adapters.records import lines, reading
from daemon.core.types import NodeName

#: -v: a host with several vnodes is otherwise summed up as ``<various>``.
NODES = ("pbsnodes", "-av", "-F", "dsv")
#: -t: where the jobs of an array run is told of each alone.
JOBS = ("qstat", "-f", "-t", "-F", "dsv")
RESERVATIONS = ("pbs_rstat", "-F")

#: What the batch system calls the nodes of no queue and no partition.
DEFAULT_PARTITION = "pbs-default"

#: Operators' free text, newlines and separators included.  Of what is behind it only
#: ``partition`` is read.
_FREE_TEXT = "|comment="
_AVAILABLE, _ASSIGNED = "resources_available.", "resources_assigned."
_JOB_START = "Job Id: "
_JOB_KEYS = (
    "job_state",
    "stime",
    "exec_vnode",
    "exec_host",
    "estimated.exec_vnode",
    "estimated.start_time",
    "topjob",
)

_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_JOB = re.compile(r"[0-9]{1,18}(?:\[[0-9]{0,18}\])?(?:\.[A-Za-z0-9._-]+)?")
_RESERVATION = re.compile(r"[A-Z][0-9]{1,18}(?:\.[A-Za-z0-9._-]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class VnodeRecord:
    """A line of ``pbsnodes``: a host, or a part of one."""

    name: str
    host: NodeName
    #: Empty when the record contradicts itself.
    state: str
    cpus: int
    memory_mib: int
    #: Something of it is given to a job.
    assigned: bool
    jobs: tuple[str, ...]
    reservations: tuple[str, ...]
    partitions: tuple[str, ...]
    features: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A line of ``qstat``."""

    id: str
    state: str
    #: When it started; None is not yet.
    start: datetime | None
    #: The vnodes it has, or the hosts where PBS names only these.
    vnodes: tuple[str, ...]
    #: When it is expected to start, and where; None is not known.
    expected: datetime | None
    planned: tuple[str, ...]


def parse_nodes(text: str) -> tuple[VnodeRecord, ...]:
    """
    Read the answer to ``NODES``; nothing comes of an answer without nodes.

    Raises:
        UnparsableError: a record is not complete.
    """
    command = " ".join(NODES)
    records: dict[str, VnodeRecord] = {}
    in_free_text = False
    for number, line in lines(command, text):
        if not line.startswith("Name="):
            # A comment with a newline in it goes on here.  Somebody may even write a
            # whole record that way: then there are two of one name, see below.
            if line.strip() and not in_free_text:
                raise UnparsableError(command, f"line {number} is no node", sample=line)
            continue
        in_free_text = _FREE_TEXT in line
        record = _vnode(command, number, line)
        if record.name in records:
            record = replace(record, state="")
        records[record.name] = record
    return tuple(records.values())


def parse_jobs(text: str) -> tuple[JobRecord, ...]:
    """
    Read the answer to ``JOBS``; an empty one is a queue without jobs.

    Raises:
        UnparsableError: a line is not understood, or a job holds nodes that are not told.
    """
    command = " ".join(JOBS)
    begun: list[tuple[int, str]] = []
    doubtful: list[tuple[int, str]] = []
    for number, line in lines(command, text):
        starts = line.startswith(_JOB_START)
        # OpenPBS prints some bytes as ^ and another one, which may be a newline: this may
        # go on, and it may be a user's idea of a job, or of where his own one is.
        if begun and begun[-1][1].endswith("^"):
            begun[-1] = begun[-1][0], begun[-1][1] + line
            doubtful += [(number, line)] * starts
            name, *rest = fields(begun[-1][1])
            doubtful.append((number, "|".join((name, *reversed(rest)))))
        elif starts:
            begun.append((number, line))
        elif line.strip():
            raise UnparsableError(command, f"line {number} is no job", sample=line)
    records = [_job(command, number, line) for number, line in begun]
    for number, line in doubtful:
        with contextlib.suppress(UnparsableError):
            records.append(_job(command, number, line))
    return tuple(records)


def parse_reservations(text: str) -> Mapping[str, datetime]:
    """
    Read the answer to ``RESERVATIONS``: when each begins, or began.

    Raises:
        UnparsableError: a block has no begin.
    """
    command = " ".join(RESERVATIONS)
    found: dict[str, datetime] = {}
    name = ""
    named: list[str] = []
    for line in text.splitlines():
        if line.startswith("Resv ID: "):
            name = line.removeprefix("Resv ID: ").strip()
            if _RESERVATION.fullmatch(name) is None:
                raise UnparsableError(command, "a bad name", sample=line)
            named.append(name)
        elif name and line.startswith("reserve_start = "):
            # Users may write more lines like this one: the earliest counts.
            begin = moment(line.removeprefix("reserve_start = ").strip())
            if begin is not None:
                found[name] = min(begin, found.get(name, begin))
    for each in named:
        if each not in found:
            raise UnparsableError(command, f"{each} has no reserve_start", sample=text)
    return found


def _vnode(command: str, number: int, line: str) -> VnodeRecord:
    head, _, tail = line.partition(_FREE_TEXT)
    pairs = [pair(field) for field in head.split("|")]
    values = {key: value for key, _, value in reversed(pairs)}
    # Behind the comment only the last word counts: what is in it comes before.
    values |= {k: v for k, _, v in map(pair, tail.split("|")) if k == "partition"}
    with reading(command, number, line):
        state = values["state"]
        return VnodeRecord(
            name=matched(VNODE, values["Name"], "a name"),
            host=NodeName(matched(_HOST, _host(values), "a host")),
            state="" if _twice(pairs) else state,
            cpus=count(values.get(f"{_AVAILABLE}ncpus", values.get("pcpus", "0"))),
            memory_mib=mib(values.get(f"{_AVAILABLE}mem", "0")),
            assigned=any(not is_zero(v) for k, v in values.items() if k.startswith(_ASSIGNED)),
            jobs=tuple(dict.fromkeys(_jobs_of(values.get("jobs", "")))),
            reservations=listed(values.get("resv", "")),
            partitions=_partitions(values),
            features=tuple(
                key.removeprefix(_AVAILABLE)
                for key, value in values.items()
                if key.startswith(_AVAILABLE) and value == "True"
            ),
        )


def _twice(pairs: list[tuple[str, str, str]]) -> bool:
    keys = [key for key, ispair, _ in pairs if ispair]
    return len(set(keys)) < len(keys)


def _host(values: Mapping[str, str]) -> str:
    return values.get(f"{_AVAILABLE}host") or values["Name"].split("[", 1)[0]


def _jobs_of(text: str) -> Iterator[str]:
    """Yield the jobs of ``21.vm/0, 22.vm/2``, which has one entry for each core."""
    for entry in listed(text):
        yield matched(_JOB, entry.split("/", 1)[0], "a job")


def _partitions(values: Mapping[str, str]) -> tuple[str, ...]:
    found = [
        *listed(values.get("queue", "")),
        *listed(values.get(f"{_AVAILABLE}Qlist", "")),
        *listed(values.get("partition", "")),
    ]
    return tuple(dict.fromkeys(found)) or (DEFAULT_PARTITION,)


def _job(command: str, number: int, line: str) -> JobRecord:
    values: dict[str, str] = {}
    for key, ispair, value in map(pair, fields(line)):
        if ispair and key in _JOB_KEYS:
            values.setdefault(key, value)
    with reading(command, number, line):
        state = values["job_state"]
        where = values.get("exec_vnode") or values.get("exec_host", "")
        # A job that is not among the first any more may keep what was expected of it.
        first = values.get("topjob") != "False"
        planned = values.get("estimated.exec_vnode") if first else None
        return JobRecord(
            id=matched(_JOB, line.split("|", 1)[0].removeprefix(_JOB_START), "a job"),
            state=state,
            start=moment(values.get("stime", "")),
            # A job that holds nodes, and not which, is none.
            vnodes=() if state in words.HOLDING_NOTHING else vnodes(where),
            expected=moment(values.get("estimated.start_time", "")),
            planned=() if planned is None else vnodes(planned),
        )
