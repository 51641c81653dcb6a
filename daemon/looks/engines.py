"""Asking the engines, each in a thread of its own: one that hangs delays nobody."""

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime

import structlog

from daemon.clock import Clock
from daemon.core.types import (
    EngineView,
    Job,
    JobId,
    JobState,
    NodeName,
    SegmentRef,
    SegmentView,
)
from daemon.looks.work import Work
from daemon.store import NodeRecord
from migration.base import Engine, EngineError

_log = structlog.get_logger(__name__)


class EngineLooks:
    """The newest answer of each engine."""

    def __init__(
        self,
        engine: Engine,
        *,
        work: Work,
        clock: Clock,
        threads: int,
        wake: Callable[[], None],
        lock: threading.RLock,
    ) -> None:
        self._engine = engine
        self._work = work
        self._clock = clock
        self._threads = threads
        self._wake = wake
        self._lock = lock
        self._pool: ThreadPoolExecutor | None = None
        self._views: dict[NodeName, EngineView] = {}
        self._asked: set[NodeName] = set()
        #: To be asked once more as soon as they have answered.
        self._again: set[NodeName] = set()
        self._silences: dict[NodeName, datetime] = {}
        #: Before this nobody looked: an engine may have been away, with its node or alone.
        self._began = clock.now()

    @property
    def asking(self) -> bool:
        """Whether a question is under way."""
        return bool(self._asked)

    def open(self) -> None:
        """Get ready to ask."""
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="survey")

    def close(self) -> None:
        """Ask nothing more; answers under way are dropped."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def ask(self, nodes: Iterable[NodeName], *, eager: bool = False) -> None:
        """
        Ask these engines; those that still owe an answer are left.

        The loop is woken by what has changed, and by any answer to an ``eager`` question.
        The answer that is owed may be older than such a question: then it is asked again.
        """
        with self._lock:
            if self._pool is None:
                return
            for node in sorted(set(nodes)):
                if node not in self._asked:
                    self._asked.add(node)
                    self._pool.submit(self._look, node, eager=eager)
                elif eager:
                    self._again.add(node)

    def known(self) -> set[NodeName]:
        """Return the nodes whose engines answered last time, and those being asked."""
        with self._lock:
            return {node for node, view in self._views.items() if view.reachable} | self._asked

    def is_fit(self, node: NodeName) -> bool:
        """Tell whether the engine answered last time and the node can hold jobs."""
        view = self._views.get(node)
        return view is not None and view.reachable and view.fit

    def held(self, jobs: Iterable[Job]) -> dict[JobId, tuple[NodeName, ...]]:
        """Return which nodes have the generations of the jobs that are parked; asks nobody."""
        held = {}
        for job in jobs:
            if job.state is JobState.PARKED and job.generation is not None:
                nodes = self._engine.where(job.id).get(job.generation)
                if nodes:
                    held[job.id] = nodes
        return held

    def views(self, started: Mapping[SegmentRef, datetime]) -> dict[NodeName, EngineView]:
        """
        Return all answers.

        Segments whose engine was silent at some time since they ``started`` are marked.
        """
        return {node: self._marked(view, started) for node, view in self._views.items()}

    def probed(self, record: NodeRecord, *, retry_at: datetime | None) -> None:
        """Take the canary's word about a node."""
        self._change(
            record.name,
            lambda view: replace(
                view,
                fit=record.probe_ok,
                why=record.probe_why,
                other_users=record.other_users,
                machine=record.machine,
                probe_after=retry_at,
            ),
        )

    def distrust(self, node: NodeName, why: str, *, until: datetime) -> None:
        """Call the node unfit until it is probed again, which is not before then."""
        self._change(node, lambda view: replace(view, fit=False, why=why, probe_after=until))

    def _change(self, node: NodeName, change: Callable[[EngineView], EngineView]) -> None:
        with self._lock:
            if node in self._views:
                self._views[node] = change(self._views[node])

    def _look(self, node: NodeName, *, eager: bool) -> None:
        turn = self._work.turn()
        views: tuple[SegmentView, ...] = ()
        trouble = ""
        try:
            views = self._engine.survey(node)
        except EngineError as exc:
            trouble = str(exc) or repr(exc)
        except Exception as exc:  # noqa: BLE001  our own fault must read as silence too
            _log.exception("survey.fault", node=node)
            trouble = repr(exc)
        with self._lock:
            self._asked.discard(node)
            before = self._views.get(node)
            after = self._silent(node, trouble) if trouble else self._answered(node, views)
            self._views[node] = after
            self._work.looked(node, turn)
            news = eager or before is None or _differ(before, after)
            if node in self._again:
                self._again.discard(node)
                self.ask([node], eager=True)
        if before is not None and before.reachable != after.reachable:
            _log.warning("engine.changed", node=node, reachable=after.reachable, reason=trouble)
        if news:
            self._wake()

    def _known(self, node: NodeName) -> EngineView:
        unknown = EngineView(node=node, reachable=False, why="not probed since the start")
        return self._views.get(node, unknown)

    def _silent(self, node: NodeName, trouble: str) -> EngineView:
        now = self._clock.now()
        self._silences[node] = now
        known = self._known(node)
        return replace(
            known,
            reachable=False,
            # What it was may have changed: a reboot looks like silence.
            fit=False,
            why=trouble,
            silent_since=known.silent_since or now,
            probe_after=None,
        )

    def _answered(self, node: NodeName, views: tuple[SegmentView, ...]) -> EngineView:
        known = self._known(node)
        was_silent = known.silent_since is not None
        return replace(
            known,
            reachable=True,
            silent_since=None,
            why="not probed since it was silent" if was_silent else known.why,
            segments=views,
        )

    def _marked(self, view: EngineView, started: Mapping[SegmentRef, datetime]) -> EngineView:
        silence = self._silences.get(view.node, self._began)

        def unwitnessed(segment: SegmentView) -> bool:
            ref = SegmentRef(job=segment.job, epoch=segment.epoch, node=view.node)
            return started.get(ref, silence) <= silence

        return replace(
            view, segments=tuple(replace(s, unwitnessed=unwitnessed(s)) for s in view.segments)
        )


def _differ(before: EngineView, after: EngineView) -> bool:
    return (before.reachable, before.segments) != (after.reachable, after.segments)
