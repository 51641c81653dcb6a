"""From PBS's records to nodes and the claims on them.  Pure."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType

from adapters.pbs import words
from adapters.pbs.parse import JobRecord, VnodeRecord
from daemon.core.types import Claim, ClaimSource, Node, NodeName, NodeState

#: PBS leaves the expected start on a job that it plans no more; where it still does, it
#: says anew with each cycle of its scheduler, of which there is one in ten minutes.
_OUTDATED = timedelta(minutes=15)


def draw(
    vnodes: Iterable[VnodeRecord],
    jobs: Iterable[JobRecord],
    reservations: Mapping[str, datetime],
    taken: datetime,
) -> Mapping[NodeName, Node]:
    """
    Return every host with its claims; it is what all its vnodes are together.

    The answers are a moment apart.  When they differ the one that says less is free
    wins.  A reservation whose begin is not known counts as one that is on.
    """
    parts: dict[NodeName, list[VnodeRecord]] = {}
    host_of: dict[str, NodeName] = {}
    for vnode in vnodes:
        parts.setdefault(vnode.host, []).append(vnode)
        host_of[vnode.name] = vnode.host
    host_of |= {host: host for host in parts}
    claims: dict[NodeName, list[Claim]] = {}
    for claim in _job_claims(jobs, host_of, taken):
        claims.setdefault(claim.node, []).append(claim)
    return MappingProxyType(
        {
            host: _node(host, own, claims.get(host, []), reservations, taken)
            for host, own in parts.items()
        }
    )


def _job_claims(
    jobs: Iterable[JobRecord], host_of: Mapping[str, NodeName], taken: datetime
) -> Iterator[Claim]:
    for job in jobs:
        detail = f"priority job {job.id}"
        if job.state in words.WAITING and job.expected is not None:
            if job.expected < taken - _OUTDATED:
                continue
            source, at, where = ClaimSource.PLANNED, job.expected, job.planned
        else:
            # Of a job that holds nothing no vnodes are told.
            source, at, where = ClaimSource.ALLOCATED, job.start or taken, job.vnodes
        for host in dict.fromkeys(host_of[name] for name in where if name in host_of):
            yield _claim(host, source, at, detail)


def _node(
    host: NodeName,
    vnodes: list[VnodeRecord],
    listed: list[Claim],
    reservations: Mapping[str, datetime],
    taken: datetime,
) -> Node:
    own = list(_own_claims(host, vnodes, listed, reservations, taken))
    claims = sorted((*listed, *own), key=lambda claim: (claim.at, claim.source, claim.detail))
    states = [vnode.state for vnode in vnodes]
    state = words.judge(states, held=ClaimSource.ALLOCATED in {c.source for c in claims})
    kept = any(
        claim.source is ClaimSource.PLANNED
        or (claim.source is ClaimSource.RESERVED and claim.at <= taken)
        for claim in claims
    )
    if state is NodeState.IDLE and kept:
        state = NodeState.UNAVAILABLE
    return Node(
        name=host,
        state=state,
        cpus=sum(vnode.cpus for vnode in vnodes),
        memory_mib=sum(vnode.memory_mib for vnode in vnodes),
        words=" / ".join(dict.fromkeys(each or "contradicts itself" for each in states)),
        partitions=_united(vnode.partitions for vnode in vnodes),
        features=_united(vnode.features for vnode in vnodes),
        claims=tuple(claims),
    )


def _own_claims(
    host: NodeName,
    vnodes: list[VnodeRecord],
    listed: list[Claim],
    reservations: Mapping[str, datetime],
    taken: datetime,
) -> Iterator[Claim]:
    """Yield the claims that the host makes by itself."""
    named = _united(vnode.reservations for vnode in vnodes)
    on = [name for name in named if reservations.get(name, taken) <= taken]
    for name in named:
        if name not in on:
            at = reservations[name]
            yield _claim(host, ClaimSource.RESERVED, at, f"reservation {name}")
    known = {claim.detail for claim in listed if claim.source is ClaimSource.ALLOCATED}
    # Jobs of others may be hidden from qstat (query_other_jobs), never from their nodes.
    jobs = {f"priority job {job}" for job in _united(vnode.jobs for vnode in vnodes)}
    for job in sorted(jobs - known):
        yield _claim(host, ClaimSource.ALLOCATED, taken, job)
    wanted = _wanted(vnodes, on)
    # What a reservation that is on has is given away too.
    told = known | jobs or wanted.keys() & {ClaimSource.ALLOCATED, ClaimSource.RESERVED}
    if not told and _held(vnodes):
        wanted[ClaimSource.ALLOCATED] = "a job that PBS does not list"
    for source, detail in wanted.items():
        yield _claim(host, source, taken, detail)


def _wanted(vnodes: list[VnodeRecord], on: list[str]) -> dict[ClaimSource, str]:
    """Return who wants the host now by its words and its reservations."""
    wanted = dict(words.wanted(vnode.state for vnode in vnodes))
    if on:
        names = ", ".join(on)
        said = wanted.get(ClaimSource.RESERVED)
        wanted[ClaimSource.RESERVED] = f"{said} ({names})" if said else f"reservation {names}"
    return wanted


def _held(vnodes: list[VnodeRecord]) -> bool:
    """Tell whether something of the host is given away, by its own words."""
    return any(
        vnode.assigned or words.judge([vnode.state], held=False) is NodeState.BUSY
        for vnode in vnodes
    )


def _united(lists: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for words_of_one in lists for word in words_of_one))


def _claim(node: NodeName, source: ClaimSource, at: datetime, detail: str) -> Claim:
    return Claim(node=node, source=source, at=at, detail=detail)
