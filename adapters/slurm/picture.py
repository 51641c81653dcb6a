"""From Slurm's records to nodes and the claims on them.  Pure."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import chain
from types import MappingProxyType

from adapters.slurm import words
from adapters.slurm.parse import JobRecord, NodeRecord, ReservationRecord
from daemon.core.types import Claim, ClaimSource, Node, NodeName, NodeState


def draw(
    nodes: Iterable[NodeRecord],
    jobs: Iterable[JobRecord],
    taken: datetime,
    reservations: Iterable[ReservationRecord] = (),
) -> Mapping[NodeName, Node]:
    """
    Return every node with its claims.

    The two answers are a moment apart.  When they differ the one that says less is
    free wins: a node that was idle when it was asked about is busy if a job that
    was listed afterwards holds it.
    """
    claims = _by_node(chain(_job_claims(jobs, taken), _upcoming(reservations, taken)))
    return MappingProxyType(
        {record.name: _node(record, claims.get(record.name, []), taken) for record in nodes}
    )


def _job_claims(jobs: Iterable[JobRecord], taken: datetime) -> Iterator[Claim]:
    for job in jobs:
        detail = f"priority job {job.id}"
        if job.state == words.WAITING:
            # A held job keeps the nodes that it was planned on, but has no start.
            if job.start is not None:
                for node in job.planned:
                    yield _claim(node, ClaimSource.PLANNED, job.start, detail)
        elif job.state not in words.ENDED:
            for node in job.nodes:
                yield _claim(node, ClaimSource.ALLOCATED, job.start or taken, detail)


def _upcoming(reservations: Iterable[ReservationRecord], taken: datetime) -> Iterator[Claim]:
    """Yield the claims of reservations to come; of those that are on the nodes themselves tell."""
    for reservation in reservations:
        if reservation.start > taken:
            for node in reservation.nodes:
                detail = f"reservation {reservation.name}"
                yield _claim(node, ClaimSource.RESERVED, reservation.start, detail)


def _by_node(claims: Iterator[Claim]) -> dict[NodeName, list[Claim]]:
    found: dict[NodeName, list[Claim]] = {}
    for claim in claims:
        found.setdefault(claim.node, []).append(claim)
    return found


def _node(record: NodeRecord, claims: list[Claim], taken: datetime) -> Node:
    listed = any(claim.source is ClaimSource.ALLOCATED for claim in claims)
    # A suspended job gives back its cores and keeps its memory; jobs of others may be
    # hidden from squeue (PrivateData), never from the node's own sums.
    used = bool(record.allocated_cpus or record.allocated_mib)
    state = words.judge(record.words, held=listed or used)
    return Node(
        name=record.name,
        state=state,
        cpus=record.cpus,
        memory_mib=record.memory_mib,
        words=record.words or "contradicts itself",
        partitions=record.partitions,
        features=record.features,
        claims=tuple(
            sorted(
                (*claims, *_node_claims(record, state, claims, taken)),
                key=lambda claim: (claim.at, claim.source, claim.detail),
            )
        ),
    )


def _node_claims(
    record: NodeRecord, state: NodeState, listed: list[Claim], taken: datetime
) -> Iterator[Claim]:
    """Yield the claims that the node makes by itself."""
    found = dict(words.wanted(record.words))
    if ClaimSource.RESERVED in found and record.reservation:
        found[ClaimSource.RESERVED] += f" ({record.reservation})"
    sources = {claim.source for claim in listed} | set(found)
    base, *flags = record.words.split("+")
    busy = NodeState.BUSY in {state, words.BASES.get(base)} or "COMPLETING" in flags
    if busy and ClaimSource.ALLOCATED not in sources:
        found[ClaimSource.ALLOCATED] = "a job that squeue does not list"
    if words.PLANNED in flags and not busy and ClaimSource.PLANNED not in sources:
        found[ClaimSource.PLANNED] = "a job with no expected start"
    for source, detail in found.items():
        yield _claim(record.name, source, taken, detail)


def _claim(node: NodeName, source: ClaimSource, at: datetime, detail: str) -> Claim:
    return Claim(node=node, source=source, at=at, detail=detail)
