"""Panic: whatever lives on a node is killed there, and its cgroups prove it.

The loop does what it does for every node that is wanted, with little time.  What it has not
managed by then, because it waits for a checkpoint that hangs, for an order that is under way
or for an engine, is not waited for.  Its records are closed by those who began them, or as
those of a job that was killed from outside.
"""

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import structlog

from daemon.acts.tools import Tools
from daemon.core.types import JobState, NodeName, SegmentRef
from migration.base import EngineError

_log = structlog.get_logger(__name__)

#: A kill that is not proven is repeated so long, counted from the call of panic.
_LIMIT_SECONDS = 20.0
#: Between two looks.
_PAUSE_SECONDS = 0.1
#: Nodes, and jobs of one node, that are seen to at the same time.
_NODES_AT_ONCE = 128
_JOBS_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """What was found on a node, and whether it is gone."""

    #: What may have lived there.
    refs: frozenset[SegmentRef]
    #: Why it is not proven that nothing does any more; empty when it is.
    reason: str
    #: From the call of panic.
    seconds: float


def clear(
    tools: Tools, nodes: Iterable[NodeName], *, began: float, patience: float
) -> dict[NodeName, Cleared]:
    """
    Kill what lives on the nodes as soon as they are empty, or ``patience`` seconds are over.

    ``began`` is when panic was called, by the monotonic clock.  Returns at the latest some
    seconds after the repetitions are given up, whatever engines do.
    """
    there = {node: set(tools.observer.refs_on(node)) for node in nodes}
    while tools.clock.monotonic() - began < patience and _any_left(tools, there):
        tools.clock.wait(_PAUSE_SECONDS)
    pool = ThreadPoolExecutor(_NODES_AT_ONCE, thread_name_prefix="clear")
    # Where something was, time counts.
    order = sorted(there, key=lambda node: (not there[node], node))
    work = {node: pool.submit(_clear, tools, node, there[node], began) for node in order}
    left = max(0.0, _LIMIT_SECONDS - (tools.clock.monotonic() - began))
    wait(work.values(), timeout=left + 1.0)
    pool.shutdown(wait=False, cancel_futures=True)
    seconds = tools.clock.monotonic() - began
    return {node: _told(done, there[node], seconds) for node, done in work.items()}


def _any_left(tools: Tools, there: dict[NodeName, set[SegmentRef]]) -> bool:
    left = [ref for ref in tools.observer.refs() if ref.node in there]
    for ref in left:
        there[ref.node].add(ref)
    return bool(left)


def _told(done: Future[Cleared], refs: set[SegmentRef], seconds: float) -> Cleared:
    if not done.done() or done.cancelled():
        return Cleared(refs=frozenset(refs), reason="its engine does not answer", seconds=seconds)
    fault = done.exception()
    if fault is not None:
        return Cleared(refs=frozenset(refs), reason=f"the daemon failed: {fault}", seconds=seconds)
    return done.result()


def _clear(tools: Tools, node: NodeName, refs: set[SegmentRef], began: float) -> Cleared:
    living: set[SegmentRef] = set()
    found = set(refs)
    while True:
        placed = set(tools.observer.refs_on(node))
        found |= placed | living
        try:
            _kill(tools, placed | living)
            living = {view.ref for view in tools.engine.census(node).segments if view.processes}
            why = _in_the_way(tools, node, living)
        except EngineError as exc:
            why = str(exc)
        seconds = tools.clock.monotonic() - began
        if not why or seconds > _LIMIT_SECONDS:
            _log.warning("node.cleared", node=node, killed=len(placed), left=why)
            return Cleared(refs=frozenset(found), reason=why, seconds=seconds)
        tools.clock.wait(_PAUSE_SECONDS)


def _kill(tools: Tools, refs: set[SegmentRef]) -> None:
    """
    Kill all of them.

    Raises:
        EngineError: of one of them it is not proven that it is gone.
    """
    if not refs:
        return
    with ThreadPoolExecutor(min(len(refs), _JOBS_AT_ONCE), thread_name_prefix="kill") as pool:
        kills = [pool.submit(tools.engine.kill, ref) for ref in sorted(refs, key=_order)]
    for kill in kills:
        kill.result()


def _order(ref: SegmentRef) -> tuple[int, int]:
    return ref.job, ref.epoch


def _in_the_way(tools: Tools, node: NodeName, living: set[SegmentRef]) -> str:
    """Say why the node may not be empty: of an order that is under way nothing is to be seen."""
    if living:
        return f"processes of {len(living)} jobs are left"
    begun = {JobState.STARTING, JobState.RESUMING}
    jobs = (tools.store.job(ref.job) for ref in tools.observer.refs_on(node))
    placing = [str(job.id) for job in jobs if job is not None and job.state in begun]
    return f"orders for jobs {', '.join(placing)} are still under way" if placing else ""
