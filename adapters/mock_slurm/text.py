"""What Slurm's commands would print of the model, byte for byte, in UTC.

``Facts`` hold what only a machine or a site can know; all else comes from the model.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from adapters.mock_slurm.model import Model
from adapters.mock_slurm.nouns import JobPhase, JobView, MachineView, Planned, Reservation

_NONE = "(null)"
#: Fields of ``scontrol show node`` in their order; two blanks follow some of them.
_HEAD = (
    *("NodeName", "Arch", "CoresPerSocket", "", "CPUAlloc", "CPUEfctv", "CPUTot", "CPULoad"),
    *("AvailableFeatures", "ActiveFeatures", "Gres", "NodeAddr", "NodeHostName", "Port"),
    *("Version", "OS", "", "RealMemory", "AllocMem", "FreeMem", "Sockets", "Boards", "State"),
    *("ThreadsPerCore", "TmpDisk", "Weight", "Owner", "MCS_label", "Partitions", ""),
    *("BootTime", "SlurmdStartTime", "LastBusyTime"),
)
_SENSORS = ("ExtSensorsJoules", "ExtSensorsWatts", "ExtSensorsTemp")
#: What follows them, by the release that began with it.
_TAILS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "22.05": ("CfgTRES", "AllocTRES", "CapWatts", "CurrentWatts", "AveWatts", *_SENSORS),
        "24.11": ("ResumeAfterTime", "CfgTRES", "AllocTRES", "CurrentWatts", "AveWatts", ""),
        "26.05": (
            *("ResumeAfterTime", "SuspendTime", "CfgTRES", "AllocTRES"),
            *("CurrentWatts", "AveWatts"),
        ),
    }
)
_DEFAULTS: Mapping[str, str] = MappingProxyType(
    {
        "Arch": "x86_64",
        "CoresPerSocket": "1",
        "CPULoad": "0.00",
        "AvailableFeatures": _NONE,
        "ActiveFeatures": _NONE,
        "Gres": _NONE,
        "NodeAddr": "127.0.0.1",
        "NodeHostName": "vm",
        "Port": "6818",
        "OS": "Linux 6.1.0 #1 SMP",
        "FreeMem": "1000",
        "Boards": "1",
        "ThreadsPerCore": "1",
        "TmpDisk": "0",
        "Weight": "1",
        "Owner": "N/A",
        "MCS_label": "N/A",
        "Partitions": "priority,shared",
        "BootTime": "0",
        "SlurmdStartTime": "0",
        "LastBusyTime": "0",
        "ResumeAfterTime": "None",
        "SuspendTime": "INFINITE",
        "CapWatts": "n/a",
        "CurrentWatts": "0",
        "AveWatts": "0",
        "ExtSensorsJoules": "n/s",
        "ExtSensorsWatts": "0",
        "ExtSensorsTemp": "n/s",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A site: its release, its machines, and how it writes moments."""

    version: str = "22.05.8"
    #: SLURM_TIME_FORMAT=%s.
    seconds: bool = True
    #: By node, over the defaults.
    nodes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    #: Why a node was drained, and when.
    reasons: Mapping[str, tuple[str, float]] = field(default_factory=dict)

    @property
    def tail(self) -> tuple[str, ...]:
        """The last fields of a node in this release, or in the newest before it."""
        known = [release for release in _TAILS if release <= self.version]
        return _TAILS[known[-1] if known else "22.05"]

    def moment(self, at: float) -> str:
        """Write a moment."""
        if self.seconds:
            return f"{at:.0f}"
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))


def nodes(model: Model, facts: Facts) -> str:
    """Print what ``scontrol show node --oneliner`` does."""
    planned = model.planned()
    return "".join(f"{_node(view, planned, facts)}\n" for view in model.machines())


def _node(view: MachineView, planned: Planned | None, facts: Facts) -> str:
    name, machine = view.machine.name, view.machine
    cpus = machine.cpus if view.allocated else 0
    # A suspended job gives its cores back and keeps its memory.
    mib = machine.memory_mib if cpus or view.phase is JobPhase.SUSPENDED else 0
    tres = [f"cpu={cpus}"] * bool(cpus) + [f"mem={mib}M"] * bool(mib)
    values = {
        **_DEFAULTS,
        "NodeName": name,
        "CPUAlloc": str(cpus),
        "CPUEfctv": str(machine.cpus),
        "CPUTot": str(machine.cpus),
        "Version": facts.version,
        "RealMemory": str(machine.memory_mib),
        "AllocMem": str(mib),
        "Sockets": str(machine.cpus),
        "State": "+".join((_base(view, facts), *flags(view, planned))),
        "CfgTRES": f"cpu={machine.cpus},mem={machine.memory_mib}M,billing={machine.cpus}",
        "AllocTRES": ",".join(tres),
        **facts.nodes.get(name, {}),
    }
    words = [f"{key}={values[key]}" if key else "" for key in (*_HEAD, *facts.tail)]
    line = " ".join(words)
    if view.reserved is not None and facts.version >= "23.11":
        line += f" ReservationName={view.reserved.name}"
    if name in facts.reasons:
        reason, at = facts.reasons[name]
        first, *more = reason.split("\n")
        rest = "".join(f"        {each}" for each in more)
        line += f" Reason={first} [root@{facts.moment(at)}]{rest}"
    return line


def _base(view: MachineView, facts: Facts) -> str:
    if view.down:
        return "DOWN"
    if view.allocated:
        return "ALLOCATED"
    mixed = view.phase is JobPhase.SUSPENDED and facts.version >= "24.11"
    return "MIXED" if mixed else "IDLE"


def flags(view: MachineView, planned: Planned | None) -> tuple[str, ...]:
    """Return the flags of a node's state."""
    found = {
        "COMPLETING": view.phase is JobPhase.COMPLETING,
        "DRAIN": view.drained,
        "MAINTENANCE": view.reserved is not None and view.reserved.maintenance,
        "RESERVED": view.reserved is not None,
        "PLANNED": planned is not None
        and view.phase is None
        and view.machine.name in planned.nodes,
    }
    return tuple(flag for flag, is_true in found.items() if is_true)


def jobs(model: Model, facts: Facts) -> str:
    """Print what ``squeue --noheader --format=%A|%T|%S|%N|%Y`` does: who waits comes first."""
    planned = model.planned()
    live = [job for job in model.jobs() if job.phase is not JobPhase.ENDED]
    live = [job for job in live if job.job.submit <= model.now]
    waits = JobPhase.PENDING
    live.sort(key=lambda job: (job.phase is not waits, job.job.id))
    return "".join(f"{_job(job, planned, facts)}\n" for job in live)


def _job(view: JobView, planned: Planned | None, facts: Facts) -> str:
    state = "RUNNING" if view.phase is JobPhase.PROLOG else view.phase.name
    start, where = "N/A", ""
    if view.began is not None:
        start = facts.moment(view.began)
    elif planned is not None and planned.job.id == view.job.id:
        start, where = facts.moment(planned.at), host_list(sorted(planned.nodes))
    nodes_text = host_list(list(view.nodes))
    return "|".join((str(view.job.id), state, start, nodes_text, where or _NONE))


def reservations(model: Model, facts: Facts) -> str:
    """Print what ``scontrol show reservation --oneliner`` does."""
    found: dict[str, Reservation] = {}
    for view in model.machines():
        for each in (view.reserved, view.next_reserved):
            if each is not None:
                found[each.name] = each
    if not found:
        return "No reservations in the system\n"
    return "".join(f"{_reservation(each, model, facts)}\n" for each in found.values())


def _reservation(each: Reservation, model: Model, facts: Facts) -> str:
    cores = sum(v.machine.cpus for v in model.machines() if v.machine.name in each.nodes)
    flags = "MAINT,SPEC_NODES" if each.maintenance else "SPEC_NODES"
    seconds = int(each.end - each.begin)
    newer = " AllowedPartitions=(null) QOS=(null)" if facts.version >= "26.05" else ""
    watts = " Watts=n/a" if facts.version < "24.11" else ""
    state = "ACTIVE" if each.begin <= model.now else "INACTIVE"
    return (
        f"ReservationName={each.name} StartTime={facts.moment(each.begin)} "
        f"EndTime={facts.moment(each.end)} "
        f"Duration={seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02} "
        f"Nodes={host_list(list(each.nodes))} NodeCnt={len(each.nodes)} CoreCnt={cores} "
        f"Features=(null) PartitionName=(null) Flags={flags} TRES=cpu={cores}{newer} "
        "Users=root Groups=(null) Accounts=(null) Licenses=(null) "
        f"State={state} BurstBuffer=(null){watts} MaxStartDelay=(null)"
    )


def host_list(names: list[str]) -> str:
    """Fold names such as n1, n2 and n3 into ``n[1-3]``, as Slurm does."""
    if len(names) < 2:
        return "".join(names)
    stems = {name.rstrip("0123456789") for name in names}
    if len(stems) > 1:
        return ",".join(names)
    stem = stems.pop()
    numbers = sorted(int(name.removeprefix(stem)) for name in names)
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    shown = (f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return f"{stem}[{','.join(shown)}]"
