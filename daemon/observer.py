"""The eyes: put what the batch system and the engines say into one snapshot.

Nothing here waits for an answer.  Each question runs in a thread of its own and changes
the picture when it is answered.  One lock makes every snapshot a picture of one moment.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from adapters.base import BatchAdapter
from daemon.clock import Clock
from daemon.core.types import (
    PLACED,
    Claim,
    Generation,
    JobId,
    Machine,
    NodeName,
    Segment,
    SegmentRef,
    Snapshot,
)
from daemon.looks.batch import BatchLooks, Selection
from daemon.looks.engines import EngineLooks
from daemon.looks.notices import Notices
from daemon.looks.remembered import Remembered
from daemon.looks.work import Work
from daemon.store import NodeRecord, Store
from migration.base import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """How the eyes look."""

    #: Looks in a row that must find a node idle.
    idle_looks: int = 1
    #: Between two looks at the batch system; one that is slow is asked less often.
    poll: timedelta = timedelta(seconds=15)
    #: A claim that came from a hook or a person outlives the last job by this much.
    linger: timedelta = timedelta(seconds=60)
    ours: Selection = lambda _name, _partitions: True
    survey_threads: int = 16
    #: Engines without jobs are asked only every so many surveys: a thousand idle nodes
    #: must not keep the daemon busy.
    idle_every: int = 12


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
        self._store = store
        self._clock = clock
        self._wake = wake
        self._lock = threading.RLock()
        self._nodes = Remembered(store, self._lock)
        self._machines: dict[Machine, Machine] = {}
        self._idle_every = watch.idle_every
        self._surveys = 0
        #: The jobs whose orders a node has refused in a row, and how often it paid for that.
        self._refusals: dict[NodeName, frozenset[JobId]] = {}
        #: Which generation of a job could not be resumed, and how often.
        self._not_resumed: dict[JobId, tuple[Generation | None, int]] = {}
        self._strikes: dict[NodeName, int] = {}
        self._work = Work(self._lock)
        self._notices = Notices(linger=watch.linger, lock=self._lock)
        self._batch = BatchLooks(
            adapter,
            ours=watch.ours,
            idle_looks=watch.idle_looks,
            clock=clock,
            poll=watch.poll,
            wake=wake,
            lock=self._lock,
        )
        self._engines = EngineLooks(
            engine,
            work=self._work,
            clock=clock,
            threads=watch.survey_threads,
            wake=wake,
            lock=self._lock,
        )

    def open(self) -> None:
        """Start looking."""
        self._nodes.open()
        self._batch.open()
        self._engines.open()

    def close(self) -> None:
        """Stop looking; answers under way are dropped."""
        self._batch.close()
        self._engines.close()

    # -- questions ----------------------------------------------------------

    @property
    def batch_asked_once(self) -> bool:
        """Whether the batch system has answered, or failed to, at least once."""
        return self._batch.asked_once

    @property
    def batch_trouble(self) -> str:
        """Why the batch system's word is missing; empty when its last answer was good."""
        return self._batch.trouble

    @property
    def batch_seconds(self) -> float | None:
        """How long the batch system took for its last answer, or to fail; None before."""
        return self._batch.seconds

    def ask_batch(self) -> None:
        """Ask the batch system, unless a question is under way or it needs a rest."""
        self._batch.ask()

    def survey(self, nodes: Iterable[NodeName] | None = None) -> None:
        """Ask these engines, or those of all nodes that hold a job or could."""
        if nodes is None:
            nodes = {segment.node for segment in self._placed()} | self._due()
        self._engines.ask(nodes)

    def _due(self) -> set[NodeName]:
        """Return the nodes without jobs whose turn it is, and those never asked."""
        known = set(self._batch.cluster.nodes) if self._batch.cluster is not None else set()
        self._surveys += 1
        if self._surveys % self._idle_every == 0:
            return known
        return known - self._engines.known()

    # -- administrators, canaries and hooks ---------------------------------

    def record_of(self, node: NodeName) -> NodeRecord:
        """Return what is remembered of the node."""
        return self._nodes.of(node)

    def set_gone(self, node: NodeName, *, gone: bool) -> None:
        """Take an administrator's word that the node is dead, or its own that it is not."""
        now = self._clock.now()
        with self._lock:
            self._nodes.keep(replace(self.record_of(node), gone=now if gone else None))
        self._wake()

    def set_drained(self, node: NodeName, *, drained: bool) -> None:
        """Close the node to jobs, or open it again."""
        now = self._clock.now()
        with self._lock:
            self._nodes.keep(replace(self.record_of(node), drained=now if drained else None))
        self._wake()

    def set_panicked(
        self, nodes: Iterable[NodeName], *, panicked: bool, every: bool = False
    ) -> None:
        """Take nodes from us at once, with ``every`` those not known yet too, or give them back."""
        if panicked:
            self._nodes.panic(nodes, every=every, now=self._clock.now())
        else:
            self._nodes.calm(frozenset(nodes), known=self.known_nodes())
        self._wake()

    def panicked(self, node: NodeName) -> bool:
        """Tell whether panic was called on the node and is not over."""
        return self._nodes.panicked(node) is not None

    def known_nodes(self) -> frozenset[NodeName]:
        """Return the nodes of the batch system, those with jobs, and those with a panic."""
        found = self._listed() | {segment.node for segment in self._placed()}
        return found | self._nodes.panics(()).keys()

    def _listed(self) -> frozenset[NodeName]:
        cluster = self._batch.cluster
        return frozenset(cluster.nodes) if cluster is not None else frozenset()

    def probed(self, record: NodeRecord, *, retry_at: datetime | None) -> None:
        """Take the canary's word about a node; meanwhile an administrator may have spoken too."""
        with self._lock:
            known = self.record_of(record.name)
            if record.machine is not None:
                # Thousands of nodes are alike: one value for all of them is quick to compare.
                one = self._machines.setdefault(record.machine, record.machine)
                record = replace(record, machine=one)
            self._nodes.keep(
                replace(record, drained=known.drained, gone=known.gone, panicked=known.panicked)
            )
        self._engines.probed(record, retry_at=retry_at)
        self._wake()

    def distrust(self, node: NodeName, why: str, *, until: datetime) -> None:
        """Give the node no job until it has been probed again, which is not before then."""
        self._engines.distrust(node, why, until=until)

    def refused(self, node: NodeName, job: JobId) -> frozenset[JobId]:
        """Note that the node refused a right order; return whose it has refused just before."""
        with self._lock:
            before = self._refusals.get(node, frozenset())
            self._refusals[node] = before | {job}
            return before

    def not_resumed(self, job: JobId, generation: Generation | None) -> int:
        """Note that a generation could not be resumed; return how often since the start."""
        with self._lock:
            known, count = self._not_resumed.get(job, (generation, 0))
            count = count + 1 if known == generation else 1
            self._not_resumed[job] = (generation, count)
            return count

    def resumed(self, job: JobId) -> None:
        """Note that the job runs: its generation is good."""
        with self._lock:
            self._not_resumed.pop(job, None)

    def accepted(self, node: NodeName) -> None:
        """Note that the node carried an order out: a row of refusals is over."""
        with self._lock:
            self._refusals.pop(node, None)
            self._strikes.pop(node, None)

    def condemn(self, node: NodeName, why: str, pause: Callable[[int], timedelta]) -> bool:
        """
        Give the node no job for a while, nor before it has passed another canary.

        ``pause`` tells for how long, by how often that has happened in a row.  Return false
        when it happened just now: orders that were under way then add nothing.
        """
        with self._lock:
            known = self.record_of(node)
            if not known.probe_ok:
                return False
            strikes = self._strikes[node] = self._strikes.get(node, 0) + 1
            self._nodes.keep(replace(known, probe_ok=False, probe_digest="", probe_why=why))
        self._engines.distrust(node, why, until=self._clock.now() + pause(strikes))
        return True

    def notice(self, claim: Claim) -> None:
        """Take a claim that did not come through the batch system."""
        self._notices.take(claim)
        self._wake()

    def is_free(self, node: NodeName) -> bool:
        """Tell whether jobs may be placed on the node, by the news since the last look."""
        with self._lock:
            return (
                not self._batch.trouble
                and self._batch.is_idle(node)
                and self._engines.is_fit(node)
                and not self._notices.claims(node)
                and self.record_of(node).drained is None
                and self.record_of(node).gone is None
                and not self.panicked(node)
            )

    # -- who is at work -----------------------------------------------------

    def begin(
        self,
        jobs: Iterable[JobId],
        node: NodeName | None,
        *,
        saving: bool = False,
        coming: NodeName | None = None,
    ) -> None:
        """
        Note that an action is under way; ``node`` when it needs the node for itself.

        ``coming`` is the node on which it places the jobs.
        """
        self._work.begin(jobs, node, saving=saving, coming=coming)

    def end(
        self,
        jobs: Iterable[JobId],
        node: NodeName | None,
        looks: Iterable[NodeName],
        *,
        saving: bool = False,
    ) -> None:
        """Note that it is over: what was seen of these jobs before is worth nothing now."""
        self._work.end(jobs, node, saving=saving)
        self._engines.ask(looks, eager=True)
        self._wake()

    @contextmanager
    def removing(self, ref: SegmentRef) -> Iterator[None]:
        """Note that a segment's container is on its way out."""
        with self._work.removing(ref):
            yield
        self._engines.ask([ref.node], eager=True)

    def at_work(self) -> bool:
        """Tell whether any action or question is under way."""
        with self._lock:
            return self._work.any() or self._engines.asking or self._batch.asking

    # -- the picture --------------------------------------------------------

    def look(self) -> Snapshot:
        """Return everything that is known now."""
        now = self._clock.now()
        with self._lock:
            jobs = self._store.live_jobs()
            placed = self._placed()
            claims = self._notices.standing(
                held={segment.node for segment in placed}, cluster=self._batch.cluster, now=now
            )
            drained = self._nodes.drained()
            since = self._batch.since()
            for node, moment in [*((c.node, c.at) for c in claims), *drained.items()]:
                since[node] = min(moment, since.get(node, moment))
            return Snapshot(
                now=now,
                local=now.astimezone(),
                cluster=self._batch.cluster,
                answered=not self._batch.trouble,
                settled=self._batch.settled(),
                since=since,
                engines=self._engines.views({s.ref: s.started for s in placed}),
                jobs=jobs,
                claims=claims,
                drained=frozenset(drained),
                gone=self._nodes.gone(),
                panicked=self._nodes.panics(self._listed() | {s.node for s in placed}),
                busy_jobs=self._work.jobs(segment.ref for segment in placed),
                busy_nodes=self._work.nodes(),
                leaving=self._work.leaving(),
                saving=self._work.saving(),
                coming=self._work.coming(),
                held=self._engines.held(jobs),
                losses=self._store.losses(),
                gaps=self._batch.gaps(),
            )

    def refs(self) -> tuple[SegmentRef, ...]:
        """Return the segments that may live anywhere."""
        return tuple(segment.ref for segment in self._placed())

    def refs_on(self, node: NodeName) -> tuple[SegmentRef, ...]:
        """Return the segments that may live on the node."""
        return tuple(segment.ref for segment in self._placed() if segment.node == node)

    def _placed(self) -> tuple[Segment, ...]:
        return tuple(
            job.segment
            for job in self._store.live_jobs()
            if job.state in PLACED and job.segment is not None
        )
