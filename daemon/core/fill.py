"""Which job goes into which gap: packing by cores and memory.

First the jobs that already did some work, then the others, each in the order of
submission; each into the node that it fits most tightly, so that large gaps stay
whole for large jobs.  Among nodes that are alike, those that are dear to evict get the
longer gaps.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from math import inf

from daemon.core.actions import Place
from daemon.core.fit import Kinds
from daemon.core.forecast import expected_gap, suited
from daemon.core.held import holders, out_of_reach
from daemon.core.limits import closed, spare
from daemon.core.policy import Policy
from daemon.core.types import (
    CheckpointMode,
    Epoch,
    Job,
    JobState,
    NodeName,
    NodeState,
    Snapshot,
)
from daemon.core.wanted import Want


@dataclass(frozen=True, slots=True, order=True)
class Room:
    """The free capacity of a node; the tightest sorts first."""

    cpus: int
    memory_mib: int
    node: NodeName
    jobs: int
    #: Jobs of ordinary users can be moved away from here.
    any_user: bool
    #: Which of the different machines it is.
    kind: int = field(default=0)
    #: It has no job of ours yet.
    vacant: bool = True

    def fits(self, job: Job, kinds: frozenset[int] | None = None) -> bool:
        """Tell whether the job fits in, on one of these machines; None is every one."""
        return (
            job.spec.cpus <= self.cpus
            and job.spec.memory_mib <= self.memory_mib
            and self.jobs > 0
            and (self.any_user or not needs_criu(job))
            and (kinds is None or self.kind in kinds)
        )

    def less(self, job: Job) -> "Room":
        return replace(
            self,
            cpus=self.cpus - job.spec.cpus,
            memory_mib=self.memory_mib - job.spec.memory_mib,
            jobs=self.jobs - 1,
            vacant=False,
        )


def needs_criu(job: Job) -> bool:
    """Tell whether it must be saved where only root's processes can be."""
    return job.spec.owner.uid != 0 and job.spec.checkpoint is CheckpointMode.CRIU


def fill(snapshot: Snapshot, policy: Policy, wanted: dict[NodeName, Want]) -> Iterator[Place]:
    """Yield a placement for every waiting job that fits somewhere now."""
    if not may_start(snapshot, policy) or snapshot.cluster is None:
        return
    chosen = list(islice(_choose(snapshot, policy, wanted), policy.starts_per_tick))
    nodes = _swapped(chosen, snapshot)
    for job, _, room in chosen:
        node = nodes[room.node]
        yield Place(
            job=job.id,
            node=node,
            epoch=Epoch(job.last_epoch + 1),
            generation=job.generation,
            seen=snapshot.cluster.taken,
            reason=f"{node} is idle with {room.cpus} cores and {room.memory_mib} MiB free",
        )


def _choose(
    snapshot: Snapshot, policy: Policy, wanted: dict[NodeName, Want]
) -> Iterator[tuple[Job, Room, Room]]:
    """Yield who gets a place, with its node as it is at first and when its turn comes."""
    kinds = Kinds()
    rooms = free_rooms(snapshot, policy, wanted, kinds)
    before = {room.node: room for room in rooms}
    left = spare(snapshot, policy, wanted)
    # Rooms only get smaller: a shape that found none will find none in this plan, so a long
    # queue costs one look for each shape in it.
    hopeless: set[tuple[int, int, bool, frozenset[int] | None]] = set()
    for job in _waiting(snapshot):
        fitting = kinds.fitting(job)
        shape = (job.spec.cpus, job.spec.memory_mib, needs_criu(job), fitting)
        if shape in hopeless or out_of_reach(snapshot, job):
            continue
        # Where its checkpoint lies it need not be brought.
        place = _among(holders(snapshot, job), rooms, job, fitting)
        if place is None:
            place = _tightest(rooms, job, fitting)
        if place is None:
            hopeless.add(shape)
            continue
        room = rooms.pop(place)
        insort(rooms, room.less(job))
        left -= room.vacant
        if left <= 0:
            rooms = [room for room in rooms if not room.vacant]
        yield job, before[room.node], room


def _swapped(chosen: list[tuple[Job, Room, Room]], snapshot: Snapshot) -> dict[NodeName, NodeName]:
    """
    Return which node stands in for each: one that is like it, with a gap of more suitable length.

    What goes into one node goes together into the other, so it fits there as well.  Where a
    checkpoint lies its job stays.
    """
    costs: dict[Room, float] = {}
    found = {b.node: b.node for job, b, _ in chosen if b.node in holders(snapshot, job)}
    for job, before, _ in chosen:
        if before.node in found:
            continue
        costs[before] = costs.get(before, 0.0) + eviction_cost(job)
    alike: dict[tuple[int, int, int, bool, int], list[Room]] = {}
    for room in costs:
        look = (room.cpus, room.memory_mib, room.jobs, room.any_user, room.kind)
        alike.setdefault(look, []).append(room)
    for rooms in alike.values():
        gaps = [expected_gap(snapshot.gaps.get(room.node)) for room in rooms]
        places = suited([costs[room] for room in rooms], gaps)
        found |= {room.node: rooms[place].node for room, place in zip(rooms, places, strict=True)}
    return found


def eviction_cost(job: Job) -> float:
    """Return how dear an eviction is, in MiB to write; what cannot be saved is dearest."""
    return inf if job.spec.checkpoint is CheckpointMode.NONE else float(job.spec.memory_mib)


def may_start(snapshot: Snapshot, policy: Policy) -> bool:
    """
    Tell whether anything may be started, on the batch system's word.

    Nodes may be vacated on old news, but never filled on it.
    """
    if closed(snapshot, policy) or snapshot.cluster is None or not snapshot.answered:
        return False
    return snapshot.now - snapshot.cluster.taken <= policy.stale


def free_rooms(
    snapshot: Snapshot, policy: Policy, wanted: dict[NodeName, Want], kinds: Kinds
) -> list[Room]:
    """Return what is free on the nodes that may be filled, the tightest first."""
    rooms = sorted(_rooms(snapshot, policy, wanted, kinds).values())
    vacant = spare(snapshot, policy, wanted) > 0
    return [room for room in rooms if vacant or not room.vacant]


def _tightest(rooms: list[Room], job: Job, kinds: frozenset[int] | None) -> int | None:
    """Return where in the sorted rooms the first one is that the job fits into."""
    first = bisect_left(rooms, job.spec.cpus, key=lambda room: room.cpus)
    return next((i for i in range(first, len(rooms)) if rooms[i].fits(job, kinds)), None)


def _among(
    nodes: tuple[NodeName, ...], rooms: list[Room], job: Job, kinds: frozenset[int] | None
) -> int | None:
    """Return where in the sorted rooms the first of these nodes is that the job fits into."""
    if not nodes:
        return None
    found = (i for i, room in enumerate(rooms) if room.node in nodes and room.fits(job, kinds))
    return next(found, None)


def _waiting(snapshot: Snapshot) -> list[Job]:
    """Return the jobs that may be placed now, in the order in which they are served."""
    ready = [
        job
        for job in snapshot.jobs
        if job.state in {JobState.QUEUED, JobState.PARKED}
        and not (job.hold_wanted or job.cancel_wanted or job.id in snapshot.busy_jobs)
        and (job.not_before is None or job.not_before <= snapshot.now)
    ]
    return sorted(ready, key=lambda job: (job.state is not JobState.PARKED, job.submitted, job.id))


def _rooms(
    snapshot: Snapshot, policy: Policy, wanted: dict[NodeName, Want], kinds: Kinds
) -> dict[NodeName, Room]:
    """Return the free capacity of every node that may be filled."""
    rooms: dict[NodeName, Room] = {}
    if snapshot.cluster is None:
        return rooms
    for name in sorted(snapshot.cluster.nodes):
        node, engine = snapshot.cluster.nodes[name], snapshot.engines.get(name)
        if node.state is not NodeState.IDLE or name not in snapshot.settled or name in wanted:
            continue
        if engine is None or not (engine.reachable and engine.fit) or name in snapshot.busy_nodes:
            continue
        if name in snapshot.gone:
            continue
        rooms[name] = Room(
            cpus=node.cpus - policy.reserve_cpus,
            memory_mib=node.memory_mib - policy.reserve_memory_mib,
            node=name,
            jobs=policy.max_jobs_per_node,
            any_user=engine.other_users,
            kind=kinds.number(engine.machine),
        )
    for job in snapshot.jobs:
        seat = snapshot.seat(job)
        if seat is not None and seat in rooms:
            rooms[seat] = rooms[seat].less(job)
    return rooms
