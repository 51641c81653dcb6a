"""The attributes of PBS's objects, in the order in which it prints them."""

import time
from collections.abc import Iterator

from adapters.mock_pbs.model import Model
from adapters.mock_pbs.nouns import Chunk, Job, Reservation, Vnode

#: A name and its value as text; moments are numbers until they are printed.
Attributes = list[tuple[str, "str | float"]]

VERSION = "23.06.06"
#: The substate of a job whose program does not run yet.
_STARTING = 41
_VARIABLES = (
    "PBS_O_HOME=/home/{owner}",
    "PBS_O_LANG=C.UTF-8",
    "PBS_O_LOGNAME={owner}",
    "PBS_O_PATH=/opt/pbs/bin:/opt/pbs/sbin:/usr/sbin:/usr/bin:/sbin:/bin",
    "PBS_O_INTERACTIVE_AUTH_METHOD=resvport",
    "PBS_O_INTERACTIVE_ENCRYPT_METHOD=",
    "PBS_O_WORKDIR=/tmp/jobs",
    "PBS_O_SYSTEM=Linux",
    "PBS_O_QUEUE={queue}",
    "PBS_O_HOST={server}",
)
#: Everything that a job may have, for attributes that the model does not make by itself.
_JOB_ORDER = (
    "Job_Name",
    "Job_Owner",
    *(f"resources_used.{key}" for key in ("cpupercent", "cput", "mem", "ncpus", "vmem")),
    "resources_used.walltime",
    *("job_state", "queue", "server", "Checkpoint", "ctime", "depend", "Error_Path"),
    *("Execution_Time", "exec_host", "exec_vnode", "Hold_Types", "Join_Path", "Keep_Files"),
    *("Mail_Points", "mtime", "Output_Path", "Priority", "qtime", "Rerunable"),
    *(f"Resource_List.{key}" for key in ("mem", "ncpus", "ngpus", "nodect", "place", "select")),
    *(
        "Resource_List.walltime",
        "schedselect",
        "obittime",
        "stime",
        "session_id",
        "jobdir",
        "substate",
    ),
    *("Variable_List", "euser", "egroup", "hashname", "queue_rank", "queue_type", "comment"),
    *("etime", "run_count", "Exit_status", "Submit_arguments", "estimated.exec_vnode"),
    *("estimated.start_time", "project", "run_version", "topjob", "Submit_Host"),
)


def of_node(model: Model, vnode: Vnode) -> Attributes:
    """Return the attributes of a vnode."""
    found: Attributes = [("Mom", vnode.host), ("Port", "15002"), ("pbs_version", VERSION)]
    found += [("ntype", "PBS"), ("state", state_of(model, vnode))]
    if vnode.pcpus is not None:
        found.append(("pcpus", str(vnode.pcpus)))
    jobs = list(_entries(model, vnode.name))
    if jobs:
        found.append(("jobs", ", ".join(jobs)))
    reserved = model.reserved(vnode.name)
    if reserved:
        found.append(("resv", ", ".join(r.name for r in reserved)))
    has = {"arch": "linux", "host": vnode.host, "mem": vnode.mem, "ncpus": str(vnode.ncpus)}
    has |= {"ngpus": str(vnode.ngpus)} if vnode.ngpus else {}
    found += [(f"resources_available.{k}", v) for k, v in (has | {"vnode": vnode.name}).items()]
    found += [(f"resources_assigned.{k}", v) for k, v in _assigned(model, vnode)]
    if vnode.comment:
        found.append(("comment", vnode.comment))
    found += [("resv_enable", "True"), ("sharing", vnode.sharing)]
    if vnode.multi:
        found.append(("in_multivnode_host", "1"))
    found += [("license", "l"), ("last_state_change_time", vnode.changed)]
    if vnode.used is not None:
        found.append(("last_used_time", vnode.used))
    return found


def state_of(model: Model, vnode: Vnode) -> str:
    """Return the words for the state of a vnode."""
    words = []
    holders = [job for job, _ in model.shares(vnode.name)]
    whole = any("excl" in job.place for job in holders) or vnode.sharing == "default_excl"
    if vnode.down:
        words.append("down")
    if vnode.offline:
        words.append("offline")
    if vnode.maintenance:
        words.append("maintenance")
    if holders and whole:
        words.append("job-exclusive")
    # Out of service it is just that, jobs or not; a dead node keeps telling of its jobs.
    elif holders and model.taken(vnode.name) >= vnode.ncpus and not vnode.offline:
        words.append("job-busy")
    if model.reserved_now(vnode.name):
        words.append("resv-exclusive")
    return ",".join(words) or "free"


def _entries(model: Model, vnode: str) -> Iterator[str]:
    """Yield a job for each core that it has."""
    holders = [job for job, chunk in model.shares(vnode) for _ in range(chunk.ncpus)]
    for core, job in enumerate(holders):
        yield f"{job.number}.{model.cluster.server}/{core}"


def _assigned(model: Model, vnode: Vnode) -> Iterator[tuple[str, str]]:
    chunks = [chunk for _, chunk in model.shares(vnode.name)]
    for reservation in model.reserved_now(vnode.name):
        chunks += [chunk for chunk in reservation.has if chunk.vnode == vnode.name]
    yield "accelerator_memory", "0kb"
    yield "hbmem", "0kb"
    yield "mem", f"{sum(chunk.mem_kb for chunk in chunks)}kb"
    yield "naccelerators", "0"
    yield "ncpus", str(sum(chunk.ncpus for chunk in chunks))
    if "ngpus" in vnode.ever:
        yield "ngpus", str(sum(chunk.ngpus for chunk in chunks))
    yield "vmem", "0kb"


def of_job(model: Model, job: Job) -> Attributes:
    """Return the attributes of a job."""
    found = dict(_asked(model, job)) | dict(_done(model, job)) | job.attributes
    return [(key, found[key]) for key in _JOB_ORDER if key in found]


def _asked(model: Model, job: Job) -> Iterator[tuple[str, "str | float"]]:
    server = model.cluster.server
    words = {"owner": job.owner, "queue": job.queue, "server": server}
    found: dict[str, str | float] = {
        "Job_Name": job.name,
        "Job_Owner": f"{job.owner}@{server}",
        "job_state": job.state,
        "queue": job.queue,
        "server": server,
        "Checkpoint": "u",
        "ctime": job.created,
        "Error_Path": f"{server}:/tmp/jobs/{job.name}.e{job.number}",
        "Hold_Types": job.hold,
        "Join_Path": "oe",
        "Keep_Files": "n",
        "Mail_Points": "a",
        "mtime": job.modified,
        "Output_Path": f"{server}:/tmp/jobs/",
        "Priority": "0",
        "qtime": job.created,
        "Rerunable": str(job.rerunnable),
        "Resource_List.ncpus": str(sum(chunk.ncpus for chunk in job.asked)),
        "Resource_List.nodect": str(len(job.asked)),
        "Resource_List.place": job.place,
        "Resource_List.select": job.select,
        "schedselect": job.select,
        "substate": str(job.substate),
        "Variable_List": ",".join(_VARIABLES).format(**words),
        "euser": job.owner,
        "egroup": job.owner,
        "queue_rank": f"{job.created * 1e6:.0f}",
        "queue_type": "E",
        "Submit_arguments": job.arguments,
        "project": "_pbs_project_default",
        "Submit_Host": server,
    }
    yield from found.items()
    if job.hold == "n":
        yield "etime", job.created
    for key, amount in (
        ("mem", sum(chunk.mem_kb for chunk in job.asked)),
        ("ngpus", sum(chunk.ngpus for chunk in job.asked)),
    ):
        if amount:
            yield f"Resource_List.{key}", _size(amount) if key == "mem" else str(amount)
    if job.walltime is not None:
        yield "Resource_List.walltime", duration(job.walltime)


def _done(model: Model, job: Job) -> Iterator[tuple[str, "str | float"]]:
    if job.holds and job.started is not None:
        yield (
            "exec_host",
            "+".join(
                f"{model.vnode(chunk.vnode).host}/{slot}" + (f"*{chunk.ncpus}" * (chunk.ncpus > 1))
                for chunk, slot in zip(job.has, job.slots, strict=True)
            ),
        )
        yield "exec_vnode", chunks_text(job.has)
        yield "stime", job.started
        if job.substate != _STARTING:
            yield "jobdir", f"/home/{job.owner}"
        when = time.strftime("%a %b %d at %H:%M", time.gmtime(job.started))
        yield "comment", f"Job run at {when} on {chunks_text(job.has)}"
    elif job.state == "Q" and job.comment:
        yield "comment", job.comment
    if job.runs:
        yield "hashname", f"{job.number}.{model.cluster.server}"
        yield "run_count", str(job.runs)
        yield "run_version", str(job.runs)
    if job.died is not None:
        yield "obittime", job.died
    if job.exit_status is not None:
        yield "Exit_status", str(job.exit_status)
    if job.expected is not None:
        yield "estimated.exec_vnode", chunks_text(job.planned)
        yield "estimated.start_time", job.expected
        yield "topjob", "True"


def of_reservation(model: Model, resv: Reservation) -> Attributes:
    """Return the attributes of a reservation."""
    server, on = model.cluster.server, resv.begin <= model.now
    names = "+".join(f"1:ncpus={chunk.ncpus}:vnode={chunk.vnode}" for chunk in resv.has)
    return [
        ("Reserve_Name", resv.label),
        ("Reserve_Owner", f"{resv.owner}@{server}"),
        ("reserve_state", "RESV_RUNNING" if on else "RESV_CONFIRMED"),
        ("reserve_substate", "5" if on else "2"),
        ("reserve_start", resv.begin),
        ("reserve_end", resv.end),
        ("reserve_duration", str(resv.seconds)),
        ("queue", resv.name.split(".", 1)[0]),
        ("Resource_List.ncpus", str(sum(chunk.ncpus for chunk in resv.has))),
        ("Resource_List.nodect", str(len(resv.has))),
        ("Resource_List.select", names),
        ("Resource_List.place", "excl"),
        ("Resource_List.walltime", duration(resv.seconds)),
        ("schedselect", names),
        ("resv_nodes", chunks_text(resv.has)),
        ("Authorized_Users", f"{resv.owner}@{server}"),
        ("server", server),
        ("ctime", resv.created),
        ("mtime", resv.created),
        ("Variable_List", f"PBS_O_LOGNAME={resv.owner},PBS_O_HOST={server}"),
        ("euser", resv.owner),
        ("egroup", resv.owner),
        ("reserve_count", "1"),
        ("Submit_Host", server),
        ("partition", "pbs-default"),
    ]


def chunks_text(chunks: list[Chunk]) -> str:
    """Return what PBS calls an exec_vnode."""
    return "+".join(f"({_chunk(chunk)})" for chunk in chunks)


def _chunk(chunk: Chunk) -> str:
    words = [chunk.vnode, f"ncpus={chunk.ncpus}"]
    words += [f"mem={chunk.mem_kb}kb"] * bool(chunk.mem_kb)
    words += [f"ngpus={chunk.ngpus}"] * bool(chunk.ngpus)
    return ":".join(words)


def duration(seconds: int) -> str:
    """Return hours, minutes and seconds."""
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _size(kilobytes: int) -> str:
    for power, unit in ((20, "gb"), (10, "mb")):
        if kilobytes % (1 << power) == 0:
            return f"{kilobytes >> power}{unit}"
    return f"{kilobytes}kb"
