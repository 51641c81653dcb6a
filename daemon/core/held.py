"""Where a waiting job's checkpoint lies, when it lies on nodes and not beside them all."""

from daemon.core.types import Job, NodeName, Snapshot


def holders(snapshot: Snapshot, job: Job) -> tuple[NodeName, ...]:
    """Return the nodes that have what the job goes on from; empty: every node can read it."""
    return snapshot.held.get(job.id, ()) if job.generation is not None else ()


def out_of_reach(snapshot: Snapshot, job: Job) -> str:
    """Say on which silent nodes the job's checkpoint lies; empty if it can be had."""
    nodes = holders(snapshot, job)
    if not nodes or any(_answers(snapshot, node) for node in nodes):
        return ""
    return f"its checkpoint lies on {', '.join(nodes)}, which does not answer"


def _answers(snapshot: Snapshot, node: NodeName) -> bool:
    engine = snapshot.engines.get(node)
    return engine is not None and engine.reachable and node not in snapshot.gone
