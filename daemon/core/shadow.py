"""Shadow mode: what would be done on the live system, imagined from tick to tick.

A job that would have been started holds its place in later decisions, until its node is
wanted, its time is over, or it is not to run any more.  How long it would really have run
nobody can know.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType

from daemon.core.actions import Action, Place, Stop, Vacate
from daemon.core.plan import plan
from daemon.core.policy import Policy
from daemon.core.types import (
    Job,
    JobId,
    JobState,
    NodeName,
    Phase,
    Segment,
    SegmentView,
    Snapshot,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadow:
    """Everything that was imagined since shadow mode began."""

    since: datetime
    #: What would run now.
    segments: Mapping[JobId, Segment] = field(default_factory=lambda: MappingProxyType({}))
    #: How long jobs would have run in segments that ended.
    ran: Mapping[JobId, timedelta] = field(default_factory=lambda: MappingProxyType({}))
    #: Jobs that would have come to their time limit.
    over: frozenset[JobId] = frozenset()
    #: Segments that would have been started, and those that would have been evicted, by node.
    starts: int = 0
    evictions: Mapping[NodeName, int] = field(default_factory=lambda: MappingProxyType({}))


def follow(
    shadow: Shadow, snapshot: Snapshot, policy: Policy
) -> tuple[Shadow, tuple[Place | Vacate, ...]]:
    """Return what is imagined after this moment, and what would be done in it."""
    waiting = {job.id for job in snapshot.jobs if _waits(job)}
    shadow = replace(
        shadow,
        segments={job: at for job, at in shadow.segments.items() if job in waiting},
        ran={job: ran for job, ran in shadow.ran.items() if job in waiting},
        over=shadow.over & waiting,
    )
    actions = plan(_imagined(snapshot, shadow), replace(policy, shadow=False))
    done: list[Place | Vacate] = []
    for action in actions:
        shadow, told = _carried_out(shadow, action, snapshot.now)
        done += [] if told is None else [told]
    return shadow, tuple(done)


def _waits(job: Job) -> bool:
    wanted = not (job.hold_wanted or job.cancel_wanted)
    return job.state in {JobState.QUEUED, JobState.PARKED} and wanted


def _imagined(snapshot: Snapshot, shadow: Shadow) -> Snapshot:
    """Return the picture as it would be, with nodes that would pass their canaries."""
    jobs = tuple(_running(job, shadow) for job in snapshot.jobs if job.id not in shadow.over)
    views: dict[NodeName, list[SegmentView]] = {}
    for at in shadow.segments.values():
        view = SegmentView(job=at.job, epoch=at.epoch, container="", phase=Phase.RUNNING)
        views.setdefault(at.node, []).append(view)
    engines = {
        name: replace(engine, fit=True, segments=(*engine.segments, *views.get(name, ())))
        for name, engine in snapshot.engines.items()
    }
    for name in views.keys() & engines.keys():
        # What is imagined does not become unreachable.
        engines[name] = replace(engines[name], reachable=True)
    return replace(snapshot, jobs=jobs, engines=engines)


def _running(job: Job, shadow: Shadow) -> Job:
    ran = job.ran + shadow.ran.get(job.id, timedelta())
    segment = shadow.segments.get(job.id)
    if segment is None:
        return replace(job, ran=ran)
    return replace(job, state=JobState.RUNNING, segment=segment, ran=ran)


def _carried_out(
    shadow: Shadow, action: Action, now: datetime
) -> tuple[Shadow, Place | Vacate | None]:
    """Imagine one action; what concerns real segments is not imagined, but done."""
    match action:
        case Place():
            return _placed(shadow, action, now), action
        case Vacate():
            refs = tuple(ref for ref in action.refs if ref.job in shadow.segments)
            action = replace(action, refs=refs)
            return (_vacated(shadow, action, now), action) if refs else (shadow, None)
        case Stop(ref=ref) if ref.job in shadow.segments:
            left = {job: at for job, at in shadow.segments.items() if job != ref.job}
            return replace(shadow, segments=left, over=shadow.over | {ref.job}), None
        case _:
            return shadow, None


def _placed(shadow: Shadow, action: Place, now: datetime) -> Shadow:
    segment = Segment(job=action.job, epoch=action.epoch, node=action.node, started=now)
    segments = {**shadow.segments, action.job: segment}
    return replace(shadow, segments=segments, starts=shadow.starts + 1)


def _vacated(shadow: Shadow, action: Vacate, now: datetime) -> Shadow:
    """Have the jobs wait again; they keep the time that they ran."""
    evicted = {ref.job: shadow.segments[ref.job] for ref in action.refs}
    ran = {
        job: shadow.ran.get(job, timedelta()) + (now - at.started) for job, at in evicted.items()
    }
    count = shadow.evictions.get(action.node, 0) + len(evicted)
    return replace(
        shadow,
        segments={job: at for job, at in shadow.segments.items() if job not in evicted},
        ran={**shadow.ran, **ran},
        evictions={**shadow.evictions, action.node: count},
    )
