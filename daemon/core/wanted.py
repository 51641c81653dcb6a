"""Which nodes are wanted, by whom, from when and until when.

A node that we hold must be given back when somebody claims it, and also when
nothing is known of it any more: unknown fails closed.
"""

from dataclasses import dataclass
from datetime import datetime

from daemon.core.policy import Policy
from daemon.core.types import (
    PLACED,
    Claim,
    ClaimSource,
    JobState,
    NodeName,
    NodeState,
    Phase,
    Snapshot,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """Somebody wants a node."""

    node: NodeName
    source: ClaimSource
    #: When we first knew.
    since: datetime
    #: When it must be vacant.
    deadline: datetime
    #: False while it is enough not to fill it.
    now: bool
    #: Nobody's job waits for it: work is not to be lost for being late.
    patient: bool
    reason: str


def wants(snapshot: Snapshot, policy: Policy) -> dict[NodeName, Want]:
    """Return every node that must not be filled, the most urgent reason for each."""
    found: dict[NodeName, Want] = {}
    for want in _all(snapshot, policy):
        known = found.get(want.node)
        if known is None or (not want.now, want.deadline) < (not known.now, known.deadline):
            found[want.node] = want
    return found


def _all(snapshot: Snapshot, policy: Policy) -> list[Want]:
    found = [_claimed(claim, snapshot, policy) for claim in snapshot.claims]
    found += [
        _want(node, ClaimSource.OPERATOR, snapshot, policy, "drained by an administrator")
        for node in snapshot.drained
    ]
    found += [_panicked(node, moment, policy) for node, moment in snapshot.panicked.items()]
    held = _held_nodes(snapshot)
    nodes = snapshot.cluster.nodes if snapshot.cluster is not None else {}
    for node in nodes.values():
        for claim in node.claims:
            if claim.at - snapshot.now <= policy.horizon:
                found.append(_claimed(claim, snapshot, policy))
        # A node that is planned for later is not idle, and nothing about it is in doubt.
        explained = node.state is NodeState.IDLE or bool(node.claims)
        if node.state is NodeState.UNKNOWN or not explained:
            found.append(_doubtful(node.name, snapshot, policy, f"{node.name} is {node.words}"))
    for name in held - set(nodes):
        found.append(_doubtful(name, snapshot, policy, f"the batch system does not know {name}"))
    if snapshot.cluster is not None and snapshot.now - snapshot.cluster.taken > policy.stale:
        silent = snapshot.now - snapshot.cluster.taken
        why = f"the batch system has been silent for {silent.total_seconds():.0f} s"
        found += [_doubtful(name, snapshot, policy, why) for name in held]
    found += _frozen(snapshot, policy)
    return found


def _held_nodes(snapshot: Snapshot) -> set[NodeName]:
    return {
        job.segment.node for job in snapshot.jobs if job.state in PLACED and job.segment is not None
    }


def _claimed(claim: Claim, snapshot: Snapshot, policy: Policy) -> Want:
    since = min(snapshot.since.get(claim.node, snapshot.now), snapshot.now)
    start = max(claim.at, since)
    detail = f": {claim.detail}" if claim.detail else ""
    return Want(
        node=claim.node,
        source=claim.source,
        since=since,
        deadline=claim.deadline or start + policy.vacate,
        now=claim.at - snapshot.now <= policy.ahead,
        patient=claim.source is ClaimSource.DRAINING,
        reason=f"{claim.source.value}{detail}",
    )


def _want(
    node: NodeName, source: ClaimSource, snapshot: Snapshot, policy: Policy, reason: str
) -> Want:
    since = snapshot.since.get(node, snapshot.now)
    return Want(
        node=node,
        source=source,
        since=since,
        deadline=since + policy.vacate,
        now=True,
        patient=source is ClaimSource.OPERATOR,
        reason=reason,
    )


def _panicked(node: NodeName, called: datetime, policy: Policy) -> Want:
    """Vacated in seconds, whatever that costs the jobs."""
    return Want(
        node=node,
        source=ClaimSource.OPERATOR,
        since=called,
        deadline=called + policy.panic_save,
        now=True,
        patient=False,
        reason="an administrator called panic",
    )


def _doubtful(name: NodeName, snapshot: Snapshot, policy: Policy, reason: str) -> Want:
    """Not filled at once; vacated when the doubt has lasted too long."""
    since = snapshot.since.get(name, snapshot.now)
    if snapshot.cluster is not None:
        since = min(since, snapshot.cluster.taken)
    late = since + policy.unknown_grace
    return Want(
        node=name,
        source=ClaimSource.DRAINING,
        since=since,
        deadline=late + policy.vacate,
        now=snapshot.now >= late,
        patient=True,
        reason=reason,
    )


def _frozen(snapshot: Snapshot, policy: Policy) -> list[Want]:
    """
    Somebody on the node froze a job of ours: a prolog that could not reach us.

    Nobody else has a reason to, and a job that is frozen makes no progress anyway.
    """
    running = {
        (job.id, job.segment.epoch): job.segment.node
        for job in snapshot.jobs
        if job.segment is not None
        and job.state is JobState.RUNNING
        and job.id not in snapshot.busy_jobs
    }
    return [
        _want(engine.node, ClaimSource.PROLOG, snapshot, policy, "its jobs were frozen on the node")
        for engine in snapshot.engines.values()
        for view in engine.segments
        if view.phase is Phase.FROZEN and running.get((view.job, view.epoch)) == engine.node
    ]
