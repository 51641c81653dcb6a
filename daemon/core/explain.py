"""Why a job waits: one sentence with numbers, from what the plan would decide by now."""

from daemon.core.fill import free_rooms, may_start, needs_criu
from daemon.core.fit import Kinds, nowhere
from daemon.core.held import out_of_reach
from daemon.core.limits import closed
from daemon.core.policy import Policy
from daemon.core.types import Job, JobState, NodeState, Snapshot
from daemon.core.wanted import wants


class Waiting:
    """Explains waiting jobs, all from one snapshot."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._snapshot = snapshot
        self._policy = policy
        self._kinds = Kinds()
        self._rooms = free_rooms(snapshot, policy, wants(snapshot, policy), self._kinds)
        #: What the nodes that could be used by and by have.
        self._machines = {e.machine for e in snapshot.engines.values() if e.machine is not None}
        #: Long queues have few shapes.
        self._known: dict[tuple[object, ...], str] = {}

    def why(self, job: Job) -> str:
        """Return why the job is where it is: its own last reason, unless it waits for a gap."""
        if job.state is JobState.UNREACHABLE and job.cancel_wanted and job.segment is not None:
            return (
                f"{job.reason}; it is cancelled as soon as {job.segment.node} answers, or an "
                f"administrator says that it is dead (stopgap node gone {job.segment.node})"
            )
        if job.state not in {JobState.QUEUED, JobState.PARKED}:
            return job.reason
        if job.not_before is not None and job.not_before > self._snapshot.now:
            left = (job.not_before - self._snapshot.now).total_seconds()
            return f"{job.reason}; tried again in {left:.0f} s"
        away = out_of_reach(self._snapshot, job)
        if away:
            return f"waits: {away}"
        fitting = (job.machine, job.avoid) if job.generation is not None else None
        shape = (job.spec.cpus, job.spec.memory_mib, needs_criu(job), fitting)
        if shape not in self._known:
            self._known[shape] = (
                self._cluster()
                or self._size(job)
                or nowhere(job, self._machines)
                or self._gaps(job)
            )
        return self._known[shape]

    def _cluster(self) -> str:
        cluster = self._snapshot.cluster
        why = closed(self._snapshot, self._policy)
        if why:
            return why
        if cluster is None:
            return "the batch system has not answered yet"
        if not may_start(self._snapshot, self._policy):
            return "the batch system does not answer: nothing is started"
        return "" if cluster.nodes else "no node of the batch system may be used"

    def _size(self, job: Job) -> str:
        """Say what no node will ever be large enough for."""
        nodes = self._snapshot.cluster.nodes.values() if self._snapshot.cluster else ()
        cpus = max((node.cpus for node in nodes), default=0) - self._policy.reserve_cpus
        memory = max((node.memory_mib for node in nodes), default=0)
        memory -= self._policy.reserve_memory_mib
        if job.spec.cpus > cpus:
            return f"no node is large enough: it wants {job.spec.cpus} cores, jobs get {cpus}"
        if job.spec.memory_mib > memory:
            wanted = job.spec.memory_mib
            return f"no node is large enough: it wants {wanted} MiB, jobs get {memory}"
        return ""

    def _gaps(self, job: Job) -> str:
        nodes = self._snapshot.cluster.nodes.values() if self._snapshot.cluster else ()
        idle = sum(node.state is NodeState.IDLE for node in nodes)
        if not self._rooms:
            unfit = sum(e.reachable and not e.fit for e in self._snapshot.engines.values())
            tested = f"; {unfit} have yet to pass their canary" if unfit else ""
            return (
                f"waits for a gap: {idle} of {len(nodes)} nodes are idle, none is free"
                f"{self._kept()}{tested}"
            )
        if all(not room.any_user for room in self._rooms) and needs_criu(job):
            return "waits: only root's jobs can be moved away from the nodes that are free"
        fitting = self._kinds.fitting(job)
        if fitting is not None and not any(room.kind in fitting for room in self._rooms):
            return (
                f"waits for a gap: its checkpoint fits none of the {len(self._rooms)} nodes "
                "that have room"
            )
        if not any(room.fits(job, fitting) for room in self._rooms):
            most = max((room.cpus for room in self._rooms if room.jobs > 0), default=0)
            return (
                f"waits for a gap: {len(self._rooms)} nodes have room, at most {most} cores"
                f"{self._kept()}"
            )
        return "is placed next"

    def _kept(self) -> str:
        left = self._policy.leave_idle
        return f"; as many as {left} are left idle (policy.leave_idle)" if left else ""
