"""The daemon as its callers see it: who may do what, wishes written down, views returned.

Callers never touch a node: they write a wish and wake the loop.  The exceptions are what
administrators do to a node by hand, set-up and probe, which the loop has no part in.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Protocol

from daemon.acts import probing
from daemon.acts.tools import Tools
from daemon.api.admission import admit, admit_saving
from daemon.api.ports import Caller, Refused
from daemon.api.schemas import (
    DrainView,
    GoneView,
    JobChange,
    JobDetail,
    JobRequest,
    JobView,
    NodeView,
    ProbeView,
    PrologCall,
    SetupView,
    StatusView,
    VacateView,
)
from daemon.config import Config
from daemon.core.explain import Waiting
from daemon.core.history import Change
from daemon.core.policy import Policy
from daemon.core.saving import Quota
from daemon.core.types import (
    PLACED,
    TERMINAL,
    Claim,
    ClaimSource,
    Job,
    JobId,
    JobSpec,
    JobState,
    Mount,
    NodeName,
    Outcome,
    Owner,
)
from daemon.desk import following, views
from daemon.desk.hooks import HookGuard
from daemon.desk.pulse import Pulse
from daemon.store import Store
from migration.base import EngineError, Fingerprint

_ENDED_SHOWN = 1000
#: What the loop does about a wish without a node takes less.
_QUICK_SECONDS = 1.0


class Prepared(Protocol):
    """What was done to a node, or would be."""

    @property
    def changed(self) -> bool: ...
    @property
    def steps(self) -> Sequence[str]: ...


class Examined(probing.Canary, Protocol):
    """What a canary found, with its figures."""

    @property
    def rounds(self) -> int: ...
    @property
    def seconds(self) -> float: ...


class Workshop(Protocol):
    """Whatever sets nodes up and looks them over."""

    def setup(self, node: NodeName, *, dry_run: bool) -> Prepared:
        """Place the shim on the node and register it, or tell what would be done."""

    def fingerprint(self, node: NodeName) -> Fingerprint:
        """Return what the node runs now."""

    def probe(self, node: NodeName) -> Examined:
        """Run the canary there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Answers the API."""

    tools: Tools
    config: Config
    policy: Policy
    workshop: Workshop
    guard: HookGuard
    pulse: Pulse

    @property
    def _store(self) -> Store:
        return self.tools.store

    # -- jobs ---------------------------------------------------------------

    def submit(self, caller: Caller, request: JobRequest) -> JobDetail:
        """Enqueue a job."""
        admit(caller, request, self.config.jobs, unended=self._store.live_count(caller.uid))
        admit_saving(request, self.config.policy.checkpoint_min_seconds)
        spec = _spec(caller, request)
        job = self._store.submit(
            spec,
            now=self.tools.clock.now(),
            prepare=lambda number: self.tools.spool.put_env(number, request.env),
        )
        self.pulse.wake()
        return self.job(caller, job.id)

    def jobs(self, caller: Caller, *, all_users: bool, include_ended: bool) -> list[JobView]:
        """List jobs in order of submission."""
        now = self.tools.clock.now()
        uid = None if all_users and caller.is_admin else caller.uid
        found = [job for job in self._store.live_jobs() if uid is None or job.spec.owner.uid == uid]
        if include_ended:
            found += self._store.ended_jobs(uid=uid, limit=_ENDED_SHOWN)
        explained = self._explained(sorted(found, key=lambda job: job.id))
        return [views.job_view(job, now) for job in explained]

    def _explained(self, jobs: Iterable[Job]) -> list[Job]:
        """Return the jobs with the present reason of those that wait."""
        waiting = Waiting(self.tools.observer.look(), self.policy)
        return [replace(job, reason=waiting.why(job)) for job in jobs]

    def job(self, caller: Caller, job: int) -> JobDetail:
        """Describe one job with its history."""
        known = self._explained([self._mine(caller, job)])[0]
        return views.job_detail(
            known,
            self.tools.clock.now(),
            self._store.segments(known.id),
            self._store.checkpoints(known.id),
            self._store.history(known.id),
        )

    def logs(self, caller: Caller, job: int, *, follow: bool) -> Iterator[bytes]:
        """Yield what the job printed in all of its segments."""
        known = self._mine(caller, job)
        return (following.follow if follow else following.log_of)(self.tools, known.id)

    def cancel(self, caller: Caller, job: int) -> JobChange:
        """Wish for the job to end."""
        known = self._mine(caller, job)
        if known.state is JobState.CANCELLED or known.cancel_wanted:
            return self._change(known, "already_cancelled")
        if known.state in TERMINAL:
            raise Refused(
                f"job {job} is {known.state.value}, it cannot be cancelled any more",
                "stopgap show tells how it ended",
                409,
            )
        return self._wish(known, Change(job=known.id, cancel_wanted=True), "cancelled")

    def hold(self, caller: Caller, job: int) -> JobChange:
        """Wish for the job not to run; one that runs goes on until it is next evicted."""
        known = self._unended(caller, job)
        if known.hold_wanted:
            return self._change(known, "already_held")
        return self._wish(known, Change(job=known.id, hold_wanted=True), "held")

    def release(self, caller: Caller, job: int) -> JobChange:
        """Take a hold back."""
        known = self._unended(caller, job)
        if not known.hold_wanted:
            return self._change(known, "already_released")
        return self._wish(known, Change(job=known.id, hold_wanted=False), "released")

    def _wish(self, job: Job, change: Change, result: str) -> JobChange:
        job, _ = self._store.record(change, now=self.tools.clock.now())
        self.pulse.wake()
        return self._change(self._granted(job), result)

    def _granted(self, job: Job) -> Job:
        """Give the loop a moment for what is quick; return the job as it is then."""
        clock, until = self.tools.clock, self.tools.clock.monotonic() + _QUICK_SECONDS
        while not _as_wished(job) and clock.monotonic() < until:
            clock.wait(0.02)
            job = self._store.job(job.id) or job
        return job

    def _change(self, job: Job, result: str) -> JobChange:
        (job,) = self._explained([job])
        view = views.job_view(job, self.tools.clock.now())
        return JobChange.model_validate({**view.model_dump(), "result": result})

    def _mine(self, caller: Caller, job: int) -> Job:
        known = self._store.job(JobId(job))
        # Somebody else's job and no job are one answer: numbers tell nothing.
        if known is None or not (caller.is_admin or known.spec.owner.uid == caller.uid):
            raise Refused(f"there is no job {job} of yours", "stopgap queue lists your jobs", 404)
        return known

    def _unended(self, caller: Caller, job: int) -> Job:
        known = self._mine(caller, job)
        if known.state in TERMINAL:
            raise Refused(f"job {job} is {known.state.value}", "it has ended", 409)
        return known

    # -- the daemon and its nodes -------------------------------------------

    def status(self) -> StatusView:
        """Sum the daemon's state up."""
        found = self.pulse.status(self._store.evictions())
        pauses = list(Quota(self._store.live_jobs(), self.policy).pauses())
        return found.model_copy(update={"problems": found.problems + pauses})

    def nodes(self) -> list[NodeView]:
        """List the nodes in order of their names."""
        return views.node_views(self.tools.observer.look(), self.policy)

    def drain(self, caller: Caller, node: str) -> DrainView:
        """Close the node to jobs; those that run there are evicted."""
        name = self._node(caller, node)
        already = self.tools.observer.record_of(name).drained is not None
        if not already:
            self.tools.observer.set_drained(name, drained=True)
        return DrainView(
            node=node, drained=True, result="already_drained" if already else "drained"
        )

    def undrain(self, caller: Caller, node: str) -> DrainView:
        """Open the node again."""
        name = self._node(caller, node)
        drained = self.tools.observer.record_of(name).drained is not None
        if drained:
            self.tools.observer.set_drained(name, drained=False)
        return DrainView(
            node=node, drained=False, result="undrained" if drained else "already_undrained"
        )

    def gone(self, caller: Caller, node: str) -> GoneView:
        """Take an administrator's word that the node is dead: its jobs go on elsewhere."""
        name = self._node(caller, node, known=False)
        refs = self.tools.observer.refs_on(name)
        snapshot = self.tools.observer.look()
        engine = snapshot.engines.get(name)
        if not refs and (snapshot.cluster is None or name not in snapshot.cluster.nodes):
            raise Refused(f"there is no node {node}", "stopgap nodes lists them", 404)
        if engine is not None and engine.reachable:
            raise Refused(
                f"the engine of {node} answers, so the node is not dead",
                f"stopgap vacate --node {node} empties it, stopgap node drain keeps it empty",
                409,
            )
        already = self.tools.observer.record_of(name).gone is not None
        if not already:
            self.tools.observer.set_gone(name, gone=True)
        return GoneView(
            node=node,
            result="already_gone" if already else "gone",
            jobs=sorted(ref.job for ref in refs),
        )

    def vacate(self, caller: Caller, node: str, seconds: float) -> VacateView:
        """Have the node emptied, kill what is left after that time, return when it is empty."""
        name = self._node(caller, node)
        clock = self.tools.clock
        began, start = clock.now(), clock.monotonic()
        refs = self.tools.observer.refs_on(name)
        self.tools.observer.notice(
            Claim(
                node=name,
                source=ClaimSource.OPERATOR,
                at=began,
                deadline=began + timedelta(seconds=seconds),
                detail=f"vacated by {caller.name}",
            )
        )
        limit = seconds + self.config.engine.timeout_seconds
        while self.tools.observer.refs_on(name):
            if clock.monotonic() - start > limit:
                raise Refused(
                    f"{node} is not empty after {limit:.0f} s",
                    "stopgap nodes and the daemon's log say what is in the way",
                    503,
                )
            clock.wait(0.05)
        try:
            left = sum(cgroup.processes for cgroup in self.tools.engine.census(name).segments)
        except EngineError as exc:
            raise Refused(f"{node} could not be looked at: {exc}", "try again", 503) from exc
        saved = {
            (segment.job, segment.epoch)
            for ref in refs
            for segment in self._store.segments(ref.job)
            if segment.outcome is Outcome.EVICTED
        }
        evicted = sum((ref.job, ref.epoch) in saved for ref in refs)
        if left:
            raise Refused(f"{left} processes are left on {node}", "the daemon's log says why", 503)
        return VacateView(
            node=node,
            processes=0,
            evicted=evicted,
            killed=len(refs) - evicted,
            seconds=round(clock.monotonic() - start, 3),
        )

    def setup(self, caller: Caller, node: str, *, dry_run: bool) -> SetupView:
        """Place the shim on the node and register it, or tell what would be done."""
        name = self._node(caller, node, known=False)
        try:
            done = self.workshop.setup(name, dry_run=dry_run)
        except EngineError as exc:
            raise Refused(f"{node} was not set up: {exc}", "correct it and try again", 503) from exc
        if done.changed and not dry_run:
            self.tools.observer.distrust(name, "set up anew", until=self.tools.clock.now())
            self.pulse.wake()
        return SetupView(node=node, dry_run=dry_run, changed=done.changed, steps=list(done.steps))

    def probe(self, caller: Caller, node: str) -> ProbeView:
        """Run the canary on the node, which gets no job and no other canary meanwhile."""
        name = self._node(caller, node, known=False)
        self.tools.observer.begin((), name)
        try:
            fingerprint = self.workshop.fingerprint(name)
            found = self.workshop.probe(name)
            probing.keep(self.tools, name, found, fingerprint)
        except EngineError as exc:
            raise Refused(f"{node} was not probed: {exc}", "correct it and try again", 503) from exc
        finally:
            self.tools.observer.end((), name, (name,))
        return ProbeView(
            node=node,
            fit=found.passed,
            reason=found.reason,
            rounds=found.rounds,
            seconds=round(found.seconds, 3),
            fingerprint=_texts(fingerprint),
        )

    def hook(self, node: str, body: bytes, signature: str) -> None:
        """Take a prolog's word that the node is wanted now."""
        now = self.tools.clock.now()
        if not self.guard.is_new(NodeName(node), body, signature, now=now):
            return
        call = PrologCall.model_validate_json(body)
        self.tools.observer.notice(
            Claim(
                node=NodeName(node),
                source=ClaimSource.PROLOG,
                at=now,
                # The prolog kills by itself after its time: be done shortly before.
                deadline=now + timedelta(seconds=call.seconds * 0.9),
                detail=f"prolog of priority job {call.job}" if call.job else "prolog",
            )
        )

    def _node(self, caller: Caller, node: str, *, known: bool = True) -> NodeName:
        if not caller.is_admin:
            raise Refused(
                "only administrators may do this",
                f"ask a member of the group {self.config.daemon.admin_group}",
                403,
            )
        cluster = self.tools.observer.look().cluster
        if known and (cluster is None or node not in cluster.nodes):
            raise Refused(f"there is no node {node}", "stopgap nodes lists them", 404)
        return NodeName(node)


def _as_wished(job: Job) -> bool:
    """Tell whether there is nothing more to wait for; what a node must do takes its time."""
    if job.state in TERMINAL or job.state is JobState.UNREACHABLE:
        return True
    if job.cancel_wanted:
        return False
    return job.state in PLACED or (job.state is JobState.HELD) == job.hold_wanted


def _spec(caller: Caller, request: JobRequest) -> JobSpec:
    seconds, every = request.time_seconds, request.checkpoint_every_seconds
    return JobSpec(
        name=request.name,
        owner=Owner(uid=caller.uid, gid=caller.gid, groups=caller.groups, name=caller.name),
        image=request.image,
        command=request.command,
        cpus=request.cpus,
        memory_mib=request.mem_mib,
        mounts=tuple(
            Mount(source=m.source, target=m.target, read_only=m.read_only) for m in request.mounts
        ),
        workdir=request.workdir,
        time_limit=None if seconds is None else timedelta(seconds=seconds),
        output=request.output,
        checkpoint=request.checkpoint,
        checkpoint_every=None if every is None else timedelta(seconds=every),
        after_crash=request.after_crash,
        results=request.results,
    )


def _texts(fingerprint: Fingerprint) -> dict[str, str]:
    return {
        "engine": fingerprint.engine,
        "kernel": fingerprint.kernel,
        "runc": fingerprint.runc,
        "criu": fingerprint.criu,
        "cgroup": fingerprint.cgroup,
        "boot_id": fingerprint.boot_id,
    }
