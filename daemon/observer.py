"""The eyes: asks the batch system and the engines, and puts the answers into one snapshot.

Nothing here waits for an answer.  Each question runs in a thread of its own pool and
changes the picture when it is answered, so an engine that hangs delays nobody but itself.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog

from adapters.base import AdapterError, BatchAdapter
from daemon.clock import Clock
from daemon.core.types import (
    PLACED,
    Claim,
    Cluster,
    EngineView,
    Job,
    JobId,
    NodeName,
    NodeState,
    SegmentRef,
    SegmentView,
    Snapshot,
)
from daemon.store import NodeRecord, Store
from migration.base import Engine, EngineError

_log = structlog.get_logger(__name__)

_NOT_YET = "has not been asked yet"
#: Later than every turn.
_FOR_NOW = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """How the eyes look."""

    #: Looks in a row that must find a node idle.
    idle_looks: int = 2
    #: A claim that came from a hook or a person outlives the last job by this much.
    linger: timedelta = timedelta(seconds=60)
    #: Which of the batch system's nodes are ours to use.
    ours: Callable[[NodeName, tuple[str, ...]], bool] = lambda _name, _partitions: True
    survey_threads: int = 16


@dataclass(frozen=True, slots=True)
class _Notice:
    """A claim from outside the batch system."""

    claim: Claim
    until: datetime


class Observer:
    """Holds the newest answers and who is at work on what."""

    def __init__(
        self,
        *,
        adapter: BatchAdapter,
        engine: Engine,
        store: Store,
        clock: Clock,
        watch: Watch,
        wake: Callable[[], None],
    ) -> None:
        self._adapter = adapter
        self._engine = engine
        self._store = store
        self._clock = clock
        self._watch = watch
        self._wake = wake
        self._lock = threading.RLock()
        self._pool: ThreadPoolExecutor | None = None
        self._batch_pool: ThreadPoolExecutor | None = None
        self._batch_asked = False
        self._cluster: Cluster | None = None
        self._batch_trouble = _NOT_YET
        self._idle_looks: dict[NodeName, int] = {}
        self._since: dict[NodeName, datetime] = {}
        self._notices: dict[NodeName, _Notice] = {}
        self._engines: dict[NodeName, EngineView] = {}
        self._asked: set[NodeName] = set()
        #: Order of questions and ends of actions; not time, which may stand still.
        self._turn = 0
        self._looked: dict[NodeName, int] = {}
        self._silences: dict[NodeName, datetime] = {}
        self._jobs_at_work: dict[JobId, int] = {}
        self._nodes_at_work: dict[NodeName, int] = {}
        self._touched: dict[JobId, int] = {}
        self._leaving: dict[SegmentRef, int] = {}
        self._records: dict[NodeName, NodeRecord] = {}

    def open(self) -> None:
        """Start looking."""
        self._pool = ThreadPoolExecutor(self._watch.survey_threads, thread_name_prefix="survey")
        self._batch_pool = ThreadPoolExecutor(1, thread_name_prefix="batch")
        self._records = self._store.nodes()

    def close(self) -> None:
        """Stop looking; answers under way are dropped."""
        for pool in (self._pool, self._batch_pool):
            if pool is not None:
                pool.shutdown(wait=False, cancel_futures=True)

    # -- the batch system ---------------------------------------------------

    @property
    def batch_asked_once(self) -> bool:
        """Whether the batch system has answered, or failed to, at least once."""
        return self._cluster is not None or self._batch_trouble != _NOT_YET

    @property
    def batch_trouble(self) -> str:
        """Why the batch system's word is missing; empty when its last answer was good."""
        return self._batch_trouble

    def ask_batch(self) -> None:
        """Ask the batch system, unless a question is under way."""
        with self._lock:
            if self._batch_asked or self._batch_pool is None:
                return
            self._batch_asked = True
            self._batch_pool.submit(self._look_at_batch)

    def _look_at_batch(self) -> None:
        try:
            cluster = self._adapter.look()
        except AdapterError as exc:
            if self._batch_trouble != str(exc):
                _log.warning("batch.silent", batch=self._adapter.name, reason=str(exc))
            self._batch_trouble = str(exc)
        except Exception as exc:  # noqa: BLE001  a fault of ours must read as silence, not end the looks
            _log.exception("batch.fault")
            self._batch_trouble = repr(exc)
        else:
            if self._batch_trouble:
                _log.info("batch.answered", batch=self._adapter.name, nodes=len(cluster.nodes))
            self._batch_trouble = ""
            self._take(cluster)
        finally:
            with self._lock:
                self._batch_asked = False
        self._wake()

    def _take(self, cluster: Cluster) -> None:
        ours = {
            name: node
            for name, node in cluster.nodes.items()
            if self._watch.ours(name, node.partitions)
        }
        with self._lock:
            self._cluster = replace(cluster, nodes=ours)
            for name, node in ours.items():
                if node.state is NodeState.IDLE:
                    self._idle_looks[name] = self._idle_looks.get(name, 0) + 1
                    self._since.pop(name, None)
                else:
                    self._idle_looks[name] = 0
                    self._since.setdefault(name, cluster.taken)
            for name in set(self._idle_looks) - set(ours):
                self._idle_looks[name] = 0
                self._since.setdefault(name, cluster.taken)

    # -- the engines --------------------------------------------------------

    def survey(self, nodes: Iterable[NodeName] | None = None) -> None:
        """Ask the engines of these nodes, or of all; those that still owe an answer are left."""
        with self._lock:
            if self._pool is None:
                return
            for node in sorted(set(nodes) if nodes is not None else self._surveyed()):
                if node not in self._asked:
                    self._asked.add(node)
                    self._pool.submit(self._survey_one, node)

    def _surveyed(self) -> set[NodeName]:
        """Every node that holds a job, and every one that could: idle or lately used."""
        held = {
            job.segment.node
            for job in self._store.live_jobs()
            if job.state in PLACED and job.segment is not None
        }
        known = self._cluster.nodes if self._cluster is not None else {}
        return held | set(known)

    def _survey_one(self, node: NodeName) -> None:
        began = self._next_turn()
        views: tuple[SegmentView, ...] = ()
        trouble = ""
        try:
            views = self._engine.survey(node)
        except EngineError as exc:
            trouble = str(exc) or repr(exc)
        except Exception as exc:  # noqa: BLE001  as above
            _log.exception("survey.fault", node=node)
            trouble = repr(exc)
        with self._lock:
            self._asked.discard(node)
            before = self._engines.get(node)
            after = self._view(node, before, views, trouble)
            self._engines[node] = after
            self._looked[node] = began
        if before is None or (before.reachable, before.segments) != (
            after.reachable,
            after.segments,
        ):
            if before is not None and before.reachable != after.reachable:
                _log.warning("engine.changed", node=node, reachable=after.reachable, reason=trouble)
            self._wake()

    def _view(
        self,
        node: NodeName,
        before: EngineView | None,
        views: tuple[SegmentView, ...],
        trouble: str,
    ) -> EngineView:
        now = self._clock.now()
        before = before or EngineView(node=node, reachable=False, why="not probed since the start")
        if trouble:
            self._silences[node] = now
            return replace(
                before,
                reachable=False,
                # What it was may have changed: a reboot looks like silence.
                fit=False,
                why=trouble,
                silent_since=before.silent_since or now,
                probe_after=None,
            )
        return replace(
            before,
            reachable=True,
            silent_since=None,
            why=before.why
            if before.reachable or before.silent_since is None
            else "not probed since it was silent",
            segments=views,
        )

    def probed(self, record: NodeRecord, *, retry_at: datetime | None) -> None:
        """Take the canary's word about a node."""
        self._store.save_node(record)
        with self._lock:
            self._records[record.name] = record
            view = self._engines.get(record.name)
            if view is not None:
                self._engines[record.name] = replace(
                    view,
                    fit=record.probe_ok,
                    why=record.probe_why,
                    other_users=record.other_users,
                    probe_after=retry_at,
                )
        self._wake()

    def distrust(self, node: NodeName, why: str, *, until: datetime) -> None:
        """Give the node no job until it has been probed again, which is not before then."""
        with self._lock:
            view = self._engines.get(node)
            if view is not None:
                self._engines[node] = replace(view, fit=False, why=why, probe_after=until)

    # -- administrators and hooks -------------------------------------------

    def record_of(self, node: NodeName) -> NodeRecord:
        """Return what is remembered of the node."""
        with self._lock:
            return self._records.get(node) or NodeRecord(name=node)

    def set_drained(self, node: NodeName, *, drained: bool) -> None:
        """Close the node to jobs, or open it again."""
        now = self._clock.now()
        record = replace(self.record_of(node), drained=now if drained else None)
        self._store.save_node(record)
        with self._lock:
            self._records[node] = record
        self._wake()

    def notice(self, claim: Claim) -> None:
        """Take a claim that did not come through the batch system."""
        until = (claim.deadline or claim.at) + self._watch.linger
        with self._lock:
            self._notices[claim.node] = _Notice(claim, until)
        self._wake()

    def _claims(self, jobs: tuple[Job, ...], now: datetime) -> tuple[Claim, ...]:
        """
        Drop the claims that have done their work.

        A claim stands while jobs are on its node.  Then the batch system's own word counts,
        as soon as there is one that is surely newer; without one the claim lingers.
        """
        held = {job.segment.node for job in jobs if job.state in PLACED and job.segment is not None}
        for node, notice in list(self._notices.items()):
            newer = (
                self._cluster is not None
                and self._cluster.taken > notice.claim.at + timedelta(seconds=2)
                and self._cluster.nodes.get(node) is not None
                and self._cluster.nodes[node].state is not NodeState.IDLE
            )
            if node not in held and (newer or now > notice.until):
                del self._notices[node]
        return tuple(notice.claim for _, notice in sorted(self._notices.items()))

    # -- who is at work -----------------------------------------------------

    def begin(self, jobs: Iterable[JobId], node: NodeName | None) -> None:
        """Note that an action is under way; ``node`` when it needs the node for itself."""
        with self._lock:
            for job in jobs:
                self._jobs_at_work[job] = self._jobs_at_work.get(job, 0) + 1
            if node is not None:
                self._nodes_at_work[node] = self._nodes_at_work.get(node, 0) + 1

    def end(self, jobs: Iterable[JobId], node: NodeName | None, looks: Iterable[NodeName]) -> None:
        """Note that it is over: what was seen of these jobs before is worth nothing now."""
        with self._lock:
            for job in jobs:
                self._touched[job] = self._next_turn()
                if self._jobs_at_work.get(job, 0) > 1:
                    self._jobs_at_work[job] -= 1
                else:
                    self._jobs_at_work.pop(job, None)
            if node is not None:
                left = self._nodes_at_work.pop(node, 1) - 1
                if left > 0:
                    self._nodes_at_work[node] = left
        self.survey(looks)
        self._wake()

    @contextmanager
    def removing(self, ref: SegmentRef) -> Iterator[None]:
        """Note that a segment's container is on its way out, until a later look is over."""
        with self._lock:
            self._leaving[ref] = _FOR_NOW
        try:
            yield
        finally:
            with self._lock:
                self._leaving[ref] = self._next_turn()
            self.survey([ref.node])

    def _gone(self) -> frozenset[SegmentRef]:
        """Forget what left before the newest look at its node; return the others."""
        self._leaving = {
            ref: turn for ref, turn in self._leaving.items() if turn > self._looked.get(ref.node, 0)
        }
        return frozenset(self._leaving)

    def at_work(self) -> bool:
        """Tell whether any action or question is under way."""
        with self._lock:
            return bool(
                self._jobs_at_work
                or self._nodes_at_work
                or self._asked
                or self._batch_asked
                or _FOR_NOW in self._leaving.values()
            )

    # -- the picture --------------------------------------------------------

    def look(self) -> Snapshot:
        """Return everything that is known now."""
        now = self._clock.now()
        jobs = self._store.live_jobs()
        with self._lock:
            claims = self._claims(jobs, now)
            since = dict(self._since)
            for claim in claims:
                since[claim.node] = min(claim.at, since.get(claim.node, claim.at))
            for record in self._records.values():
                if record.drained is not None:
                    since[record.name] = min(record.drained, since.get(record.name, record.drained))
            return Snapshot(
                now=now,
                cluster=self._cluster,
                settled=frozenset(
                    name
                    for name, looks in self._idle_looks.items()
                    if looks >= self._watch.idle_looks
                ),
                since=since,
                engines={name: self._witnessed(view, jobs) for name, view in self._engines.items()},
                jobs=jobs,
                claims=claims,
                drained=frozenset(r.name for r in self._records.values() if r.drained is not None),
                busy_jobs=frozenset(self._jobs_at_work) | self._unseen(jobs),
                busy_nodes=frozenset(self._nodes_at_work),
                leaving=self._gone(),
            )

    def _witnessed(self, view: EngineView, jobs: tuple[Job, ...]) -> EngineView:
        """Mark the segments whose engine was silent at some time of their life."""
        silence = self._silences.get(view.node)
        if silence is None:
            return view
        started = {
            (job.id, job.segment.epoch): job.segment.started
            for job in jobs
            if job.segment is not None
        }
        return replace(
            view,
            segments=tuple(
                replace(s, unwitnessed=started.get((s.job, s.epoch), silence) <= silence)
                for s in view.segments
            ),
        )

    def _unseen(self, jobs: tuple[Job, ...]) -> frozenset[JobId]:
        """Return the jobs whose node was looked at before their last action was over."""
        live = {job.id for job in jobs}
        self._touched = {job: when for job, when in self._touched.items() if job in live}
        return frozenset(
            job.id
            for job in jobs
            if job.segment is not None
            and job.state in PLACED
            and self._touched.get(job.id, 0) > self._looked.get(job.segment.node, 0)
        )

    def _next_turn(self) -> int:
        with self._lock:
            self._turn += 1
            return self._turn

    def refs_on(self, node: NodeName) -> tuple[SegmentRef, ...]:
        """Return the segments that may live on the node."""
        return tuple(
            job.segment.ref
            for job in self._store.live_jobs()
            if job.state in PLACED and job.segment is not None and job.segment.node == node
        )
