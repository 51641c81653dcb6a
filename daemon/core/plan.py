"""What to do next: a pure function from a snapshot to an ordered list of actions.

Order is safety.  What frees a node comes before what fills one, and each action
is right by itself, so that a plan may be cut off anywhere.  Every list is sorted
before a choice is made from it: the order in which a batch system happens to list
its nodes cannot matter.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from daemon.core.actions import (
    Action,
    Adopt,
    Drop,
    Hold,
    LoseTouch,
    Probe,
    Release,
    Return,
    Settle,
    Stop,
    Sweep,
    Thaw,
    Vacate,
    jobs_of,
)
from daemon.core.fill import fill, may_start
from daemon.core.policy import Policy
from daemon.core.saving import saves
from daemon.core.types import (
    PLACED,
    EngineView,
    Job,
    JobId,
    JobState,
    NodeName,
    Outcome,
    Phase,
    SegmentRef,
    SegmentView,
    Snapshot,
)
from daemon.core.wanted import Want, wants


def plan(snapshot: Snapshot, policy: Policy) -> tuple[Action, ...]:
    """Return what to do now, in order; every prefix of it is safe to carry out alone."""
    wanted = wants(snapshot, policy)
    return _once(
        (
            *_settlements(snapshot, policy, wanted),
            *_stops(snapshot),
            *_vacations(snapshot, policy, wanted),
            *_wishes(snapshot, policy),
            *_sweeps(snapshot),
            *_returns(snapshot),
            *_probes(snapshot, policy, wanted),
            *fill(snapshot, policy, wanted),
            *saves(snapshot, policy, wanted),
        )
    )


def _once(actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """Keep the first action for each job: the second would act on what the first changes."""
    taken: set[JobId] = set()
    kept: list[Action] = []
    for action in actions:
        jobs = set(jobs_of(action))
        if taken.isdisjoint(jobs):
            kept.append(action)
            taken |= jobs
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class _Placed:
    """A job that may live, beside what its engine says."""

    job: Job
    engine: EngineView | None
    view: SegmentView | None

    @property
    def answered(self) -> bool:
        return self.engine is not None and self.engine.reachable


def _placed(snapshot: Snapshot, busy: frozenset[JobId]) -> Iterator[_Placed]:
    for job in snapshot.jobs:
        if job.state not in PLACED or job.id in busy or job.segment is None:
            continue
        engine = snapshot.engines.get(job.segment.node)
        views = engine.segments if engine is not None else ()
        same = (v for v in views if (v.job, v.epoch) == (job.id, job.segment.epoch))
        yield _Placed(job, engine, next(same, None))


def _settlements(
    snapshot: Snapshot, policy: Policy, wanted: dict[NodeName, Want]
) -> Iterator[Action]:
    """Bring what we believe into line with what the engines say."""
    for placed in _placed(snapshot, snapshot.busy_jobs):
        job, segment = placed.job, placed.job.segment
        if segment is None:
            continue
        if not placed.answered:
            yield from _out_of_reach(placed, segment.ref, snapshot, policy)
        elif placed.view is None or placed.view.phase in {Phase.EXITED, Phase.CREATED}:
            if not _rests(job, snapshot.now):
                yield Settle(ref=segment.ref, view=placed.view, reason=_over(placed.view))
        elif job.state in {JobState.STARTING, JobState.RESUMING, JobState.UNREACHABLE}:
            yield Adopt(
                ref=segment.ref, view=placed.view, reason=f"found running on {segment.node}"
            )
        elif job.state is JobState.EVICTING and segment.node not in wanted:
            yield Thaw(ref=segment.ref, reason=f"nobody wants {segment.node} any more")


def _out_of_reach(
    placed: _Placed, ref: SegmentRef, snapshot: Snapshot, policy: Policy
) -> Iterator[Action]:
    """Nothing is known of a segment whose node is silent, unless an administrator knows it."""
    if ref.node in snapshot.gone:
        if not _rests(placed.job, snapshot.now):
            why = f"an administrator says that {ref.node} is dead"
            yield Settle(ref=ref, view=None, reason=why, gone=True)
    # One that may not even have begun stays what it is until its node answers.
    elif placed.job.state in {JobState.RUNNING, JobState.EVICTING} and _silent(
        placed.engine, snapshot, policy
    ):
        why = placed.engine.why if placed.engine is not None else ""
        yield LoseTouch(ref=ref, reason=f"{ref.node} does not answer: {why}")


def _over(view: SegmentView | None) -> str:
    if view is None:
        return "its container is gone"
    if view.phase is Phase.CREATED:
        return "its container never started"
    return f"its container ended with {view.exit_code}"


def _silent(engine: EngineView | None, snapshot: Snapshot, policy: Policy) -> bool:
    if engine is None:
        # It is being asked for the first time, and will answer or not.
        return False
    since = engine.silent_since
    return since is None or snapshot.now - since >= policy.silence


def _vacations(
    snapshot: Snapshot, policy: Policy, wanted: dict[NodeName, Want]
) -> Iterator[Action]:
    """One action per node: the first step of every eviction freezes all its jobs at once."""
    live: dict[NodeName, list[Job]] = {}
    # Whoever wants a node does not wait for a checkpoint that was to leave its job there.
    for placed in _placed(snapshot, snapshot.busy_jobs - snapshot.saving):
        job, view = placed.job, placed.view
        if not placed.answered or view is None or view.phase not in {Phase.RUNNING, Phase.FROZEN}:
            continue
        if job.state in {JobState.RUNNING, JobState.EVICTING} and job.segment is not None:
            live.setdefault(job.segment.node, []).append(job)
    for node in sorted(live):
        want = wanted.get(node)
        if want is None or not want.now:
            continue
        refs = tuple(
            job.segment.ref
            for job in sorted(live[node], key=lambda job: job.id)
            if job.segment is not None and not job.cancel_wanted and _due(job, want, snapshot.now)
        )
        if refs:
            yield Vacate(
                node=node,
                refs=refs,
                deadline=_deadline(want, live[node], snapshot, policy),
                seen=want.since,
                source=want.source,
                reason=want.reason,
            )


def _deadline(want: Want, jobs: list[Job], snapshot: Snapshot, policy: Policy) -> datetime:
    """
    Return when the node must be vacant.

    What was out of our reach until its time was up, or until the daemon woke from a long
    sleep, is saved all the same if nobody waits for it.
    """
    untried = all(job.state is JobState.RUNNING for job in jobs)
    if want.patient and untried and want.deadline <= snapshot.now:
        return snapshot.now + policy.vacate
    return want.deadline


def _due(job: Job, want: Want, now: datetime) -> bool:
    """Tell whether to try now: after a checkpoint that failed there is a pause."""
    return (
        job.state is JobState.RUNNING
        or job.not_before is None
        or now >= min(job.not_before, want.deadline)
    )


def _stops(snapshot: Snapshot) -> Iterator[Stop]:
    """End jobs on nodes: by request, or by a limit that their submitters set."""
    for placed in _placed(snapshot, snapshot.busy_jobs):
        job, segment = placed.job, placed.job.segment
        if segment is None or not placed.answered or _rests(job, snapshot.now):
            continue
        if job.cancel_wanted:
            yield Stop(ref=segment.ref, outcome=Outcome.CANCELLED, reason="cancelled by request")
        elif _over_time(job, snapshot.now):
            why = f"over its limit of {job.spec.time_limit}"
            yield Stop(ref=segment.ref, outcome=Outcome.TIMED_OUT, reason=why)


def _rests(job: Job, now: datetime) -> bool:
    """Tell whether the last try failed a moment ago."""
    return job.not_before is not None and now < job.not_before


def _why_held(job: Job, policy: Policy) -> str:
    if job.changed_files:
        return job.reason
    if job.faults < policy.max_faults:
        return "held by request"
    return f"held after {job.faults} faults in a row, the last: {job.reason}"


def _wishes(snapshot: Snapshot, policy: Policy) -> Iterator[Action]:
    """Carry out what was asked for jobs that run nowhere."""
    for job in snapshot.jobs:
        if job.id in snapshot.busy_jobs or job.state in PLACED:
            continue
        if job.cancel_wanted:
            yield Drop(job=job.id, reason="cancelled by request")
        elif job.hold_wanted and job.state is not JobState.HELD:
            yield Hold(job=job.id, reason=_why_held(job, policy))
        elif job.state is JobState.HELD and not job.hold_wanted:
            yield Release(job=job.id, reason="released by request")


def _over_time(job: Job, now: datetime) -> bool:
    if job.spec.time_limit is None or job.segment is None or job.state is not JobState.RUNNING:
        return False
    return job.ran + (now - job.segment.started) >= job.spec.time_limit


def _sweeps(snapshot: Snapshot) -> Iterator[Action]:
    """Remove containers of ours that belong to no segment that may live."""
    current = {
        (job.id, job.segment.epoch)
        for job in snapshot.jobs
        if job.state in PLACED and job.segment is not None
    }
    for node in sorted(snapshot.engines):
        engine = snapshot.engines[node]
        if node in snapshot.busy_nodes or not engine.reachable:
            continue
        for view in sorted(engine.segments, key=lambda view: (view.job, view.epoch)):
            ref = SegmentRef(job=view.job, epoch=view.epoch, node=node)
            if (view.job, view.epoch) in current or ref in snapshot.leaving:
                continue
            if view.job in snapshot.busy_jobs:
                continue
            yield Sweep(node=node, view=view, reason="belongs to no segment that may live")


def _returns(snapshot: Snapshot) -> Iterator[Return]:
    """Clean up nodes that were called dead and answer again; until then they get no job."""
    held = {job.segment.node for job in snapshot.jobs if job.state in PLACED and job.segment}
    for node in sorted(snapshot.gone - held - snapshot.busy_nodes):
        engine = snapshot.engines.get(node)
        due = engine is not None and (engine.probe_after is None or _past(engine, snapshot))
        if engine is not None and engine.reachable and due:
            yield Return(node=node, reason="it was called dead and answers again")


def _past(engine: EngineView, snapshot: Snapshot) -> bool:
    return engine.probe_after is not None and engine.probe_after <= snapshot.now


def _probes(snapshot: Snapshot, policy: Policy, wanted: dict[NodeName, Want]) -> Iterator[Action]:
    """Run the canary where a node could be used but has not proven that it can."""
    if not may_start(snapshot, policy):
        return
    left = policy.probes_at_once - len(snapshot.busy_nodes)
    for node in sorted(snapshot.engines):
        engine = snapshot.engines[node]
        due = engine.probe_after is None or snapshot.now >= engine.probe_after
        free = node in snapshot.settled and node not in wanted and node not in snapshot.busy_nodes
        free = free and node not in snapshot.gone
        if left > 0 and free and due and engine.reachable and not engine.fit:
            left -= 1
            yield Probe(node=node, reason=engine.why or "not probed yet")
