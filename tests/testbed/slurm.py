"""A private Slurm: munged, slurmctld and one slurmd for each node, on this one host."""

import os
import socket
import subprocess

from tests.testbed.layout import Layout

#: What a node of the bed claims to have; the host's real size does not matter.
CPUS = 4
MEMORY_MIB = 4000

#: Longer than any hook waits: beyond it Slurm drains the node and holds the user's job.
_PROLOG_SECONDS = 300

_CONF = """\
ClusterName={instance}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={munge}/socket
StateSaveLocation={slurm}/state
SlurmdSpoolDir={slurm}/spool.%n
SlurmctldPidFile={slurm}/slurmctld.pid
SlurmdPidFile={slurm}/slurmd.%n.pid
SlurmctldLogFile={logs}/slurmctld.log
SlurmdLogFile={logs}/slurmd.%n.log
SlurmctldDebug=info
SlurmdDebug=info
SlurmdParameters=config_overrides
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MailProg=/bin/true
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmdTimeout=60
KillWait=2
Waittime=0
Prolog={slurm}/prolog
PrologFlags=Alloc
PrologEpilogTimeout={prolog_seconds}
BatchStartTimeout={prolog_seconds}
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0,bf_interval=1,bf_resolution=1,bf_min_age_reserve=0
{nodes}
PartitionName=priority Nodes=ALL Default=YES OverSubscribe=EXCLUSIVE MaxTime=INFINITE State=UP
PartitionName=shared Nodes=ALL MaxTime=INFINITE State=UP
"""

_PROLOG = """\
#!/bin/sh
# The bed's nodes share one slurm.conf: each has a prolog of its own once it is set up.
hook={root}/nodes/$SLURMD_NODENAME/stopgap/prolog
[ -x "$hook" ] && exec "$hook"
exit 0
"""


def configure(bed: Layout) -> None:
    """Write the key, the configuration and the prolog."""
    for folder in (bed.slurm / "state", bed.munge):
        folder.mkdir(parents=True, mode=0o755)
    key = bed.munge / "key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(1024))
    host = socket.gethostname().split(".")[0]
    nodes = "\n".join(
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={bed.ports[name]}"
        f" CPUs={CPUS} RealMemory={MEMORY_MIB} State=UNKNOWN"
        for name in bed.nodes
    )
    bed.slurm_conf.write_text(
        _CONF.format(
            instance=bed.instance,
            host=host,
            controller_port=bed.ports["slurmctld"],
            munge=bed.munge,
            slurm=bed.slurm,
            logs=bed.logs,
            prolog_seconds=_PROLOG_SECONDS,
            nodes=nodes,
        )
    )
    prolog = bed.slurm / "prolog"
    prolog.write_text(_PROLOG.format(root=bed.root))
    prolog.chmod(0o755)


def munged_argv(bed: Layout) -> list[str]:
    """Return the command of the private munged."""
    return [
        "munged",
        "--foreground",
        f"--socket={bed.munge}/socket",
        f"--key-file={bed.munge}/key",
        f"--pid-file={bed.munge}/pid",
        f"--seed-file={bed.munge}/seed",
        f"--log-file={bed.logs}/munged.log",
    ]


def slurmctld_argv(bed: Layout) -> list[str]:
    """Return the command of the private slurmctld."""
    return ["slurmctld", "-D", "-f", str(bed.slurm_conf)]


def slurmd_argv(bed: Layout, node: str) -> list[str]:
    """Return the command of one node's slurmd."""
    return ["slurmd", "-D", "-f", str(bed.slurm_conf), "-N", node]


def ready_nodes(bed: Layout) -> set[str]:
    """Return the nodes whose slurmd answers: the states without any flag."""
    answer = subprocess.run(
        ["sinfo", "--Node", "--noheader", "--partition=shared", "--format=%N %T"],
        capture_output=True,
        text=True,
        env=os.environ | {"SLURM_CONF": str(bed.slurm_conf), "LC_ALL": "C"},
        timeout=30,
        check=False,
    )
    words = (line.split() for line in answer.stdout.splitlines())
    return {node for node, state in words if state in {"idle", "mixed", "allocated"}}


def answers(bed: Layout) -> bool:
    """Return whether slurmctld answers."""
    answer = subprocess.run(
        ["scontrol", "ping"],
        capture_output=True,
        env=os.environ | {"SLURM_CONF": str(bed.slurm_conf), "LC_ALL": "C"},
        timeout=30,
        check=False,
    )
    return answer.returncode == 0
