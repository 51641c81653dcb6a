"""The hands: each action runs in a thread of its node's own pools.

An engine that hangs holds up only its own node.  What an action changes is recorded
by the action itself, intent first and outcome after.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import structlog

from daemon.acts import ending, evicting, keeping, placing, probing
from daemon.acts.probing import Prober
from daemon.acts.tools import Tools
from daemon.core.actions import (
    Action,
    Adopt,
    Drop,
    Hold,
    LoseTouch,
    Place,
    Probe,
    Release,
    Return,
    Save,
    Settle,
    Stop,
    Sweep,
    Thaw,
    Vacate,
    jobs_of,
    node_of,
)
from daemon.core.history import Change
from daemon.core.lifecycle import Event, waiting_event
from daemon.core.types import AfterCrash, JobId, JobState, NodeName
from migration.base import EngineError

_log = structlog.get_logger(__name__)

_THREADS_PER_NODE = 8


class Executor:
    """Carries out actions."""

    def __init__(self, tools: Tools, prober: Prober) -> None:
        self._tools = tools
        self._prober = prober
        self._lock = threading.Lock()
        self._pools: dict[tuple[NodeName | None, bool], ThreadPoolExecutor] = {}
        self._closed = False

    def perform(self, action: Action) -> None:
        """Begin the action."""
        with self._lock:
            if self._closed:
                return
            node = node_of(action)
            # What frees a node must not wait behind what fills it.
            lane = (node, isinstance(action, Vacate))
            if lane not in self._pools:
                self._pools[lane] = ThreadPoolExecutor(
                    _THREADS_PER_NODE, thread_name_prefix=f"act-{node}"
                )
            self._tools.observer.begin(
                jobs_of(action),
                _alone(action),
                saving=isinstance(action, Save),
                coming=node if isinstance(action, Place) else None,
            )
            self._pools[lane].submit(self._run, action)

    def close(self) -> None:
        """Finish what is under way and begin nothing more."""
        with self._lock:
            self._closed = True
            pools = list(self._pools.values())
        for pool in pools:
            pool.shutdown(wait=True, cancel_futures=True)

    def _run(self, action: Action) -> None:
        try:
            self._carry_out(action)
        except EngineError as exc:
            _log.warning("action.failed", action=type(action).__name__, reason=str(exc))
            self._pause(jobs_of(action), f"tried again: {exc}")
        except Exception:  # noqa: BLE001  a fault of ours must not end the thread in silence
            # The job stays as it is and the next look finds it.
            _log.exception("action.fault", action=repr(action))
            self._pause(jobs_of(action))
        finally:
            node = node_of(action)
            looks = [node] if node is not None else []
            # An eviction lets go of each job as soon as that one is saved.
            jobs = () if isinstance(action, Vacate) else jobs_of(action)
            saving = isinstance(action, Save)
            self._tools.observer.end(jobs, _alone(action), looks, saving=saving)

    def _pause(self, jobs: tuple[JobId, ...], why: str = "") -> None:
        """Leave the jobs alone for a while; where that cannot be written down, by waiting."""
        try:
            for job in jobs:
                if self._tools.store.job(job) is not None:
                    self._record(Change(job=job, reason=why, pause=self._tools.retry))
        except Exception:  # noqa: BLE001  the disk is full, or the like
            _log.exception("pause.not_recorded", jobs=jobs)
            self._tools.clock.wait(self._tools.retry.total_seconds())

    def _carry_out(self, action: Action) -> None:
        tools = self._tools
        match action:
            case Place():
                placing.place(tools, action)
            case Vacate():
                evicting.vacate(tools, action)
            case Save():
                keeping.save(tools, action)
            case Thaw():
                evicting.thaw(tools, action)
            case Settle():
                ending.settle(tools, action)
            case Stop():
                ending.stop(tools, action)
            case Sweep():
                ending.sweep(tools, action)
            case Probe(node=node):
                probing.probe(tools, self._prober, node)
            case Return(node=node):
                ending.clean(tools, node)
            case _:
                self._write_down(action)

    def _write_down(self, action: Drop | LoseTouch | Hold | Release | Adopt) -> None:
        """Carry out what only changes our own records."""
        match action:
            case Drop(job=job, reason=reason):
                ending.drop(self._tools, job, reason)
            case LoseTouch(ref=ref, reason=reason):
                self._record(Change(job=ref.job, event=Event.SILENT, reason=reason))
            case Hold(job=job, reason=reason):
                self._record(Change(job=job, event=Event.HOLD, reason=reason))
            case Release(job=job, reason=reason):
                self._release(job, reason)
            case Adopt():
                self._adopt(action)

    def _record(self, change: Change) -> None:
        self._tools.store.record(change, now=self._tools.clock.now())

    def _release(self, job_id: JobId, reason: str) -> None:
        job = self._tools.store.job(job_id)
        if job is None:
            return
        change = Change(job=job_id, event=waiting_event(job), reason=reason, fault=False)
        if job.changed_files:
            # Whoever releases it has seen the list.
            change = replace(change, after_crash=AfterCrash.RESUME, changed_files=())
        self._record(change)

    def _adopt(self, action: Adopt) -> None:
        job = self._tools.store.job(action.ref.job)
        if job is None or job.segment is None or job.segment.ref != action.ref:
            return
        event = Event.ANSWERED if job.state is JobState.UNREACHABLE else Event.PLACED
        self._record(
            Change(
                job=job.id,
                event=event,
                reason=action.reason,
                # The answer that would have told was lost.
                image_digest=job.image_digest or action.view.image or None,
            )
        )


def _alone(action: Action) -> NodeName | None:
    """Return the node that the action needs for itself."""
    return node_of(action) if isinstance(action, Vacate | Probe | Return) else None
