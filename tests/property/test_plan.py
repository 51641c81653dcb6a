"""What every plan keeps, whatever the snapshot: safety only."""

import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from daemon.core.actions import Place, Probe, Return, Save, Settle, Vacate, jobs_of
from daemon.core.plan import plan
from daemon.core.policy import Policy
from daemon.core.shadow import Shadow, follow
from daemon.core.types import (
    PLACED,
    CheckpointMode,
    Claim,
    ClaimSource,
    Cluster,
    EngineView,
    Epoch,
    Generation,
    Job,
    JobId,
    JobSpec,
    JobState,
    Node,
    NodeName,
    NodeState,
    Outcome,
    Owner,
    Phase,
    Segment,
    SegmentView,
    Snapshot,
)

T = TypeVar("T")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = Policy()
NAMES = [NodeName(f"n{i}") for i in range(1, 6)]
LIVE = [
    state
    for state in JobState
    if state.value not in {"completed", "failed", "cancelled", "timed_out"}
]

seconds = st.integers(-400, 400)


@st.composite
def claims(draw: st.DrawFn, node: NodeName) -> Claim:
    at = NOW + timedelta(seconds=draw(seconds))
    return Claim(node=node, source=draw(st.sampled_from(list(ClaimSource))), at=at)


@st.composite
def nodes(draw: st.DrawFn, name: NodeName) -> Node:
    return Node(
        name=name,
        state=draw(st.sampled_from([NodeState.IDLE, *NodeState])),
        cpus=draw(st.integers(0, 8)),
        memory_mib=draw(st.integers(0, 8192)),
        claims=tuple(draw(st.lists(claims(name), max_size=1))),
    )


@st.composite
def jobs(draw: st.DrawFn, number: int) -> Job:
    state = draw(st.sampled_from(LIVE))
    ran_before = draw(st.booleans())
    segment = None
    if state in PLACED or ran_before:
        segment = Segment(
            job=JobId(number),
            epoch=Epoch(draw(st.integers(1, 3))),
            node=draw(st.sampled_from(NAMES)),
            started=NOW - timedelta(seconds=60),
            outcome=Outcome.RUNNING if state in PLACED else Outcome.EVICTED,
        )
    return Job(
        id=JobId(number),
        spec=JobSpec(
            name="j",
            owner=Owner(uid=draw(st.sampled_from([0, 1000])), gid=0),
            image="i",
            command=("c",),
            cpus=draw(st.integers(1, 8)),
            memory_mib=draw(st.integers(6, 6000)),
            checkpoint=draw(st.sampled_from([CheckpointMode.CRIU, *CheckpointMode])),
        ),
        state=state,
        submitted=NOW - timedelta(seconds=draw(st.integers(0, 1000))),
        segment=segment,
        last_epoch=3,
        generation=Generation(1) if state is JobState.PARKED else None,
        cancel_wanted=draw(st.booleans()) and draw(st.booleans()),
        hold_wanted=draw(st.booleans()) and draw(st.booleans()),
        not_before=draw(st.none() | st.just(NOW + timedelta(seconds=5))),
    )


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    found = [draw(jobs(number)) for number in range(1, draw(st.integers(0, 8)) + 1)]
    engines = {}
    for name in NAMES:
        views = [
            SegmentView(
                job=job.id,
                epoch=job.segment.epoch,
                container="c",
                phase=draw(st.sampled_from(list(Phase))),
                exit_code=0,
            )
            for job in found
            if job.segment is not None and job.segment.node == name and draw(st.booleans())
        ]
        engines[name] = EngineView(
            node=name,
            reachable=draw(st.sampled_from([True, True, False])),
            fit=draw(st.sampled_from([True, True, False])),
            other_users=draw(st.booleans()),
            segments=tuple(views),
        )
    cluster = Cluster(
        nodes={name: draw(nodes(name)) for name in NAMES if draw(st.integers(0, 9))},
        taken=NOW - timedelta(seconds=draw(st.sampled_from([1, 1, 1, 100, 1000]))),
    )
    return Snapshot(
        now=NOW,
        cluster=draw(st.sampled_from([cluster, cluster, cluster, None])),
        answered=draw(st.sampled_from([True, True, False])),
        settled=frozenset(name for name in NAMES if draw(st.integers(0, 4))),
        engines=engines,
        jobs=tuple(found),
        claims=tuple(draw(claims(name)) for name in NAMES if not draw(st.integers(0, 4))),
        drained=frozenset(name for name in NAMES if not draw(st.integers(0, 5))),
        panicked={name: NOW for name in NAMES if not draw(st.integers(0, 5))},
        busy_jobs=frozenset(job.id for job in found if not draw(st.integers(0, 4))),
        busy_nodes=frozenset(name for name in NAMES if not draw(st.integers(0, 5))),
        gone=frozenset(name for name in NAMES if not draw(st.integers(0, 5))),
        saving=frozenset(job.id for job in found if not draw(st.integers(0, 7))),
    )


def _placements(snapshot: Snapshot) -> list[Place]:
    return [action for action in plan(snapshot, POLICY) if isinstance(action, Place)]


@given(snapshots())
def test_capacity_is_never_exceeded(snapshot: Snapshot) -> None:
    """
    The jobs on a node, with the new ones, fit into its cores and its memory.
    """
    jobs_by_id = {job.id: job for job in snapshot.jobs}
    cpus: Counter[NodeName] = Counter()
    memory: Counter[NodeName] = Counter()
    placements = _placements(snapshot)
    where = {
        job.id: job.segment.node
        for job in snapshot.jobs
        if job.state in PLACED and job.segment is not None
    }
    for job_id, node in [*where.items(), *((p.job, p.node) for p in placements)]:
        cpus[node] += jobs_by_id[job_id].spec.cpus
        memory[node] += jobs_by_id[job_id].spec.memory_mib
    for placement in placements:
        assert snapshot.cluster is not None
        found = snapshot.cluster.nodes[placement.node]
        assert cpus[found.name] <= found.cpus - POLICY.reserve_cpus
        assert memory[found.name] <= found.memory_mib - POLICY.reserve_memory_mib


@given(snapshots())
def test_only_surely_idle_nodes_are_filled_or_probed(snapshot: Snapshot) -> None:
    """
    Nothing begins on a node that is unknown, claimed, drained, silent or not settled.
    """
    claimed = {c.node for c in snapshot.claims if c.at - NOW <= POLICY.horizon}
    for action in plan(snapshot, POLICY):
        if not isinstance(action, Place | Probe):
            continue
        assert snapshot.cluster is not None
        assert snapshot.answered
        assert NOW - snapshot.cluster.taken <= POLICY.stale
        assert action.node in snapshot.settled
        assert action.node not in (
            snapshot.drained | snapshot.panicked.keys() | snapshot.busy_nodes | claimed
        )
        assert snapshot.engines[action.node].reachable
        if isinstance(action, Place):
            node = snapshot.cluster.nodes[action.node]
            assert node.state is NodeState.IDLE
            assert not [c for c in node.claims if c.at - NOW <= POLICY.horizon]
            assert snapshot.engines[action.node].fit


@given(snapshots())
def test_shadow_mode_begins_nothing_and_changes_nothing_else(snapshot: Snapshot) -> None:
    """
    What frees nodes and settles records is the same; what would be begun is not more than fits.
    """
    real, shadow = plan(snapshot, POLICY), plan(snapshot, replace(POLICY, shadow=True))
    assert [a for a in real if not isinstance(a, Place | Probe)] == list(shadow)

    first, done = follow(Shadow(since=NOW), snapshot, POLICY)
    starts = [action for action in done if isinstance(action, Place)]
    assert len(first.segments) == len(starts) == first.starts
    again, more = follow(first, snapshot, POLICY)
    assert not {a.job for a in more if isinstance(a, Place)} & first.segments.keys()
    assert again.segments.keys() >= first.segments.keys()


@given(snapshots(), st.integers(0, 4))
def test_nodes_that_are_to_be_idle_are_left_idle(snapshot: Snapshot, leave_idle: int) -> None:
    """
    However many are idle, and whatever waits.
    """
    held = {j.segment.node for j in snapshot.jobs if j.state in PLACED and j.segment is not None}
    nodes_now = snapshot.cluster.nodes.values() if snapshot.cluster is not None else ()
    claimed = {c.node for c in snapshot.claims if c.at - NOW <= POLICY.horizon}
    idle = {
        node.name
        for node in nodes_now
        if node.state is NodeState.IDLE and node.name not in held | claimed and not node.claims
    }
    filled = {
        action.node
        for action in plan(snapshot, replace(POLICY, leave_idle=leave_idle))
        if isinstance(action, Place)
    }

    assert not filled - held or len(idle - filled) + len(claimed) >= leave_idle


@given(snapshots())
def test_a_job_gets_one_segment_at_most(snapshot: Snapshot) -> None:
    """
    Only a job that waits is placed, once, under an epoch never used before.
    """
    placements = _placements(snapshot)
    jobs_by_id = {job.id: job for job in snapshot.jobs}
    assert len(placements) == len({placement.job for placement in placements})
    for placement in placements:
        job = jobs_by_id[placement.job]
        assert job.state in {JobState.QUEUED, JobState.PARKED}
        assert placement.epoch > job.last_epoch
        assert placement.generation == job.generation
        assert not job.cancel_wanted
        assert not job.hold_wanted


@given(snapshots())
def test_one_action_for_a_job_at_a_time(snapshot: Snapshot) -> None:
    """
    Jobs that are being worked on are left alone, and no plan names a job twice.
    """
    named = [job for action in plan(snapshot, POLICY) for job in jobs_of(action)]

    assert snapshot.busy_jobs.isdisjoint(named)
    assert len(named) == len(set(named))


@given(snapshots())
def test_what_frees_comes_before_what_fills(snapshot: Snapshot) -> None:
    """
    Any prefix of a plan is safe: no placement stands before an eviction.
    """
    kinds = [type(action) for action in plan(snapshot, POLICY)]
    if Place in kinds:
        assert Vacate not in kinds[kinds.index(Place) :]


@given(snapshots())
def test_only_undisturbed_jobs_are_saved(snapshot: Snapshot) -> None:
    """
    A checkpoint that leaves the job running is never in the way of anybody.
    """
    jobs_by_id = {job.id: job for job in snapshot.jobs}
    claimed = {c.node for c in snapshot.claims if c.at - NOW <= POLICY.horizon}
    found = [action for action in plan(snapshot, POLICY) if isinstance(action, Save)]
    assert len(found) + len(snapshot.saving) <= max(POLICY.saves_at_once, len(snapshot.saving))
    for action in found:
        job, node = jobs_by_id[action.ref.job], action.ref.node
        assert job.state is JobState.RUNNING
        assert job.segment is not None
        assert job.segment.ref == action.ref
        assert job.spec.checkpoint is CheckpointMode.CRIU
        assert node not in (
            snapshot.drained | snapshot.panicked.keys() | snapshot.busy_nodes | claimed
        )
        assert snapshot.engines[node].reachable
        assert not any(other.state is JobState.EVICTING for other in snapshot.jobs)


@given(snapshots())
def test_a_dead_node_gets_nothing(snapshot: Snapshot) -> None:
    """
    What an administrator called dead is not used, and given up only while it is silent.
    """
    for action in plan(snapshot, POLICY):
        if isinstance(action, Place | Probe):
            assert action.node not in snapshot.gone
        if isinstance(action, Settle) and action.gone:
            assert action.ref.node in snapshot.gone
            assert not snapshot.engines[action.ref.node].reachable
        if isinstance(action, Return):
            assert action.node in snapshot.gone
            assert snapshot.engines[action.node].reachable


@given(snapshots(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(snapshot: Snapshot, dice: random.Random) -> None:
    """
    The same facts in another order give the same plan.
    """

    def shuffled(values: list[T]) -> list[T]:
        return dice.sample(values, len(values))

    cluster = snapshot.cluster
    if cluster is not None:
        cluster = replace(cluster, nodes=dict(shuffled(list(cluster.nodes.items()))))
    other = replace(
        snapshot,
        cluster=cluster,
        engines=dict(shuffled(list(snapshot.engines.items()))),
        claims=tuple(shuffled(list(snapshot.claims))),
    )

    assert plan(snapshot, POLICY) == plan(other, POLICY)
