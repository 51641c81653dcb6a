"""What administrators keep free: times of day, and nodes that are left idle."""

from daemon.core.policy import Policy
from daemon.core.types import ClaimSource, NodeName, NodeState, Snapshot
from daemon.core.wanted import Want


def closed(snapshot: Snapshot, policy: Policy) -> str:
    """Say why nothing is started anywhere at this time; empty when it may be."""
    if policy.shadow:
        return "shadow mode: nothing is started"
    if policy.hours and not _within(snapshot, policy.hours):
        return "nothing is started at this time of day (nodes.hours)"
    return ""


def _within(snapshot: Snapshot, hours: tuple[tuple[int, int], ...]) -> bool:
    local = snapshot.local or snapshot.now
    minute = local.hour * 60 + local.minute
    return any(
        start <= minute < end if start < end else minute >= start or minute < end
        for start, end in hours
    )


def spare(snapshot: Snapshot, policy: Policy, wanted: dict[NodeName, Want]) -> int:
    """
    Return how many nodes without a job of ours may get their first one now.

    Those that are left idle need not be fit for us, but free for a priority job.
    """
    if snapshot.cluster is None:
        return 0
    if not policy.leave_idle:
        return len(snapshot.cluster.nodes)
    held = {snapshot.seat(job) for job in snapshot.jobs}
    free = [
        name
        for name, node in snapshot.cluster.nodes.items()
        if node.state is NodeState.IDLE and name not in held and not _taken(wanted.get(name))
    ]
    return max(0, len(free) - policy.leave_idle)


def _taken(want: Want | None) -> bool:
    """Tell whether a priority job will have the node: one that we were sent from is idle."""
    return want is not None and want.source is not ClaimSource.OPERATOR
