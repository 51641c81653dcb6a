"""Callers and their jobs: wishes written down, views returned, logs read."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta

from daemon.api.admission import admit, admit_saving
from daemon.api.ports import Caller, Refused
from daemon.api.schemas import (
    JobChange,
    JobDetail,
    JobRequest,
    JobView,
)
from daemon.core.explain import Waiting
from daemon.core.history import Change
from daemon.core.types import (
    PLACED,
    TERMINAL,
    Job,
    JobId,
    JobSpec,
    JobState,
    Mount,
    Owner,
)
from daemon.desk import following, views
from daemon.desk.parts import Parts

_ENDED_SHOWN = 1000
#: What the loop does about a wish without a node takes less.
_QUICK_SECONDS = 1.0


class JobDesk(Parts):
    """Answers about jobs."""

    __slots__ = ()

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
            where=self.tools.engine.where(known.id),
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
