"""How long one tick takes, and how that grows with the cluster.

    python -m tests.benchmarks.bench_tick [--json]

The budget is one second on one core for 10,000 nodes, 100,000 queued jobs and 1,000
running ones, growing no faster than the input.
"""

import json
import sys
import time
from datetime import UTC, datetime, timedelta

from daemon.core.plan import plan
from daemon.core.policy import Policy
from daemon.core.types import (
    Cluster,
    EngineView,
    Epoch,
    Job,
    JobId,
    JobSpec,
    JobState,
    Node,
    NodeName,
    NodeState,
    Owner,
    Phase,
    Segment,
    SegmentView,
    Snapshot,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SIZES = ((1_000, 10_000, 100), (10_000, 100_000, 1_000))
ROUNDS = 3


def snapshot_of(nodes: int, queued: int, running: int) -> Snapshot:
    """Return a cluster of which nine tenths are idle, with jobs of a hundred shapes."""
    names = [NodeName(f"n{number:05}") for number in range(nodes)]
    jobs = [
        _job(number, names[number % nodes] if number < running else None)
        for number in range(running + queued)
    ]
    cluster = Cluster(
        nodes={
            name: Node(
                name=name,
                state=NodeState.BUSY if number % 10 == 9 else NodeState.IDLE,
                cpus=64,
                memory_mib=262_144,
            )
            for number, name in enumerate(names)
        },
        taken=NOW,
    )
    views: dict[NodeName, list[SegmentView]] = {}
    for job in jobs[:running]:
        if job.segment is not None:
            view = SegmentView(
                job=job.id, epoch=job.segment.epoch, container="c", phase=Phase.RUNNING
            )
            views.setdefault(job.segment.node, []).append(view)
    engines = {
        name: EngineView(node=name, reachable=True, fit=True, segments=tuple(views.get(name, ())))
        for name in names
    }
    return Snapshot(
        now=NOW,
        cluster=cluster,
        settled=frozenset(names),
        engines=engines,
        jobs=tuple(jobs),
    )


def _job(number: int, node: NodeName | None) -> Job:
    job = JobId(number + 1)
    segment = None
    if node is not None:
        segment = Segment(job=job, epoch=Epoch(1), node=node, started=NOW)
    return Job(
        id=job,
        spec=JobSpec(
            name="j",
            owner=Owner(uid=1000, gid=1000),
            image="i",
            command=("c",),
            cpus=1 + number % 10,
            memory_mib=1024 * (1 + number % 97 % 10),
        ),
        state=JobState.RUNNING if node is not None else JobState.QUEUED,
        submitted=NOW - timedelta(seconds=number),
        segment=segment,
        last_epoch=1 if node is not None else 0,
    )


def measure(nodes: int, queued: int, running: int) -> dict[str, float]:
    """Return the best time of a few plans, and how many actions one has."""
    snapshot = snapshot_of(nodes, queued, running)
    best, actions = float("inf"), 0
    for _ in range(ROUNDS):
        began = time.process_time()
        actions = len(plan(snapshot, Policy()))
        best = min(best, time.process_time() - began)
    return {
        "nodes": nodes,
        "queued": queued,
        "running": running,
        "actions": actions,
        "cpu_seconds": round(best, 3),
    }


def main() -> None:
    """Measure, print a table or JSON."""
    rows = [measure(*size) for size in SIZES]
    if "--json" in sys.argv:
        print(json.dumps({"tick": rows}))
        return
    print(f"{'nodes':>8} {'queued':>8} {'running':>8} {'actions':>8} {'CPU s':>8}")
    for row in rows:
        print("".join(f"{row[key]:>9}" for key in row))


if __name__ == "__main__":
    main()
