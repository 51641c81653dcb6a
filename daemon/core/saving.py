"""When a job that runs is saved without being moved: once for trial, then periodically.

A checkpoint costs the time that the job stands still; without one a lost node costs the work
since the last.  The interval that makes the sum of both smallest is the square root of twice
cost times mean time between losses (Young 1974; Daly 2006 for costs near that time, which
are out of reach here).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from math import sqrt

from daemon.core.actions import Save
from daemon.core.policy import Policy
from daemon.core.types import (
    Checkpoint,
    CheckpointKind,
    CheckpointMode,
    Job,
    JobId,
    JobState,
    Losses,
    Movable,
    NodeName,
    NodeState,
    Phase,
    Snapshot,
)
from daemon.core.wanted import Want


def interval(job: Job, losses: Losses, policy: Policy) -> timedelta:
    """Return the time between two periodic checkpoints of the job."""
    if job.spec.checkpoint_every is not None:
        return max(job.spec.checkpoint_every, policy.checkpoint_min)
    if job.save_cost is None:
        return policy.checkpoint_min
    best = sqrt(2 * job.save_cost.total_seconds() * _mtbf(losses, policy).total_seconds())
    return min(max(timedelta(seconds=best), policy.checkpoint_min), policy.checkpoint_max)


def _mtbf(losses: Losses, policy: Policy) -> timedelta:
    """Return the site's word as long as little was observed, then what was observed."""
    return (policy.node_mtbf + losses.ran) / (1 + losses.count)


def due(job: Job, losses: Losses, policy: Policy) -> datetime | None:
    """Return when the job is to be saved while it runs; None when it never is."""
    if job.spec.checkpoint is not CheckpointMode.CRIU or job.segment is None:
        return None
    began = job.segment.started
    if is_trial(job):
        return began + policy.trial
    last = max(moment for moment in (began, job.saved, job.save_tried) if moment is not None)
    return last + interval(job, losses, policy)


def is_trial(job: Job) -> bool:
    """Tell whether the job has never been saved, and nobody has tried."""
    return job.movable is Movable.UNKNOWN and job.save_tried is None


def saves(snapshot: Snapshot, policy: Policy, wanted: dict[NodeName, Want]) -> Iterator[Save]:
    """
    Yield the checkpoints that are due, trials and the most overdue first.

    None while a job is being evicted anywhere: that one needs the file system more.
    """
    if any(job.state is JobState.EVICTING for job in snapshot.jobs):
        return
    left = policy.saves_at_once - len(snapshot.saving)
    found = sorted(_due(snapshot, policy, wanted), key=_urgency) if left > 0 else []
    quota = Quota(snapshot.jobs if found else (), policy)
    for moment, job in found:
        if left <= 0:
            return
        if quota.allows(job) and job.segment is not None:
            left -= 1
            late = (snapshot.now - moment).total_seconds()
            yield Save(
                ref=job.segment.ref,
                kind=CheckpointKind.TRIAL if is_trial(job) else CheckpointKind.PERIODIC,
                # If its node is claimed meanwhile and that comes to nothing, an eviction has
                # the other half of its time.
                deadline=snapshot.now + policy.vacate / 2,
                reason=f"due for {late:.0f} s",
            )


def _urgency(found: tuple[datetime, Job]) -> tuple[bool, datetime, JobId]:
    moment, job = found
    return (not is_trial(job), moment, job.id)


def _due(
    snapshot: Snapshot, policy: Policy, wanted: dict[NodeName, Want]
) -> Iterator[tuple[datetime, Job]]:
    for job in snapshot.jobs:
        if job.state is not JobState.RUNNING or job.id in snapshot.busy_jobs or job.cancel_wanted:
            continue
        moment = due(job, snapshot.losses, policy)
        if moment is not None and moment <= snapshot.now and _at_ease(job, snapshot, wanted):
            yield moment, job


def _at_ease(job: Job, snapshot: Snapshot, wanted: dict[NodeName, Want]) -> bool:
    """Tell whether the job runs undisturbed on a node that nobody wants."""
    segment = job.segment
    if segment is None or (job.not_before is not None and snapshot.now < job.not_before):
        return False
    engine = snapshot.engines.get(segment.node)
    # What the hand asks once more: a save that is dropped there would be planned again at once.
    if engine is None or not (engine.reachable and engine.fit) or segment.node in snapshot.gone:
        return False
    if segment.node in wanted or segment.node in snapshot.busy_nodes or not snapshot.answered:
        return False
    node = None if snapshot.cluster is None else snapshot.cluster.nodes.get(segment.node)
    if node is None or node.state is not NodeState.IDLE:
        return False
    return any(
        (view.job, view.epoch, view.phase) == (job.id, segment.epoch, Phase.RUNNING)
        for view in engine.segments
    )


def stored(checkpoints: Sequence[Checkpoint]) -> int:
    """Return what generations of a job take, in bytes: what two have in common counts once."""
    there = {checkpoint.generation for checkpoint in checkpoints}
    return sum(
        checkpoint.written_bytes if checkpoint.parent in there else checkpoint.size_bytes
        for checkpoint in checkpoints
    )


class Quota:
    """What the generations of all jobs and of each user take, against what they may."""

    def __init__(self, jobs: Iterable[Job], policy: Policy) -> None:
        self._policy = policy
        self._by_user: Counter[int] = Counter()
        for job in jobs:
            self._by_user[job.spec.owner.uid] += job.stored_bytes
        self._total = self._by_user.total()

    def allows(self, job: Job) -> bool:
        """Tell whether the job may have one more generation; a trial is always allowed."""
        site, user = self._policy.max_stored, self._policy.max_stored_by_user
        if is_trial(job):
            return True
        if site is not None and self._total >= site:
            return False
        return user is None or self._by_user[job.spec.owner.uid] < user

    def pauses(self) -> Iterator[str]:
        """Yield what keeps jobs from periodic checkpoints, a sentence for each limit reached."""
        site, user = self._policy.max_stored, self._policy.max_stored_by_user
        if site is not None and self._total >= site:
            yield (
                f"periodic checkpoints pause: those of all jobs take {_gib(self._total)}, "
                f"checkpoints.max_total_gib allows {_gib(site)}"
            )
        over = sum(user is not None and taken >= user for taken in self._by_user.values())
        if user is not None and over:
            yield (
                f"periodic checkpoints of {over} users pause: each has reached the {_gib(user)} "
                "of checkpoints.max_per_user_gib"
            )


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
