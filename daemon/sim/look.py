"""Simulated nodes and jobs as the plan knows such things."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain

from daemon.core.types import Claim, ClaimSource, Cluster, JobId, NodeName, Snapshot
from daemon.sim.supply import Size
from daemon.sim.work import Slot, Work, moment


def picture(
    *,
    now: float,
    asked: float,
    slots: Mapping[NodeName, Slot],
    settled: Iterable[NodeName],
    claimed: Iterable[Slot],
    ended: Collection[Work],
    waiting: Iterable[Work],
) -> Snapshot:
    """
    Return what is shown of these nodes and jobs.

    Args:
        asked: when the batch system answered last.
        claimed: nodes whose hook has called.
        ended: jobs that have exited.
    """
    here = [work for slot in slots.values() for work in slot.works]
    at = moment(now)
    return Snapshot(
        now=at,
        cluster=Cluster(
            nodes={name: slot.node for name, slot in slots.items()}, taken=moment(asked)
        ),
        settled=frozenset(settled),
        engines={name: slot.view(ended) for name, slot in slots.items()},
        jobs=tuple(work.job() for work in chain(here, waiting)),
        claims=tuple(Claim(node=slot.name, source=ClaimSource.PROLOG, at=at) for slot in claimed),
        gaps={name: slot.history() for name, slot in slots.items()},
        busy_nodes=frozenset(name for name, slot in slots.items() if slot.vacating),
        busy_jobs=frozenset(JobId(work.number) for work in here if _is_busy(work, now)),
    )


def _is_busy(work: Work, now: float) -> bool:
    return work.ready > now or (work.slot is not None and work.slot.vacating)


def few_of_each(line: Iterable[Work], most: int) -> Iterator[Work]:
    """Yield the first so many jobs of each size, in their order."""
    seen: Counter[Size] = Counter()
    for work in line:
        seen[work.kind.size] += 1
        if seen[work.kind.size] <= most:
            yield work
