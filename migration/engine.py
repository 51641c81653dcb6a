"""The real engine: Docker on every node, the shim below it, the shared store beside it.

Docker carries out; the shim's receipts and the node's cgroups say what has happened.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from daemon.clock import Clock
from daemon.core.types import (
    Checkpoint,
    CheckpointKind,
    Epoch,
    Generation,
    JobId,
    NodeName,
    Phase,
    SegmentRef,
    SegmentView,
)
from migration import output
from migration.access import Access, NodeAccess
from migration.base import (
    Census,
    CgroupCensus,
    EngineError,
    EngineUnreachableError,
    Kept,
    NodeUnfitError,
    Placed,
    Saved,
    StartOrder,
    StillAliveError,
)
from migration.container import LABEL_EPOCH, LABEL_INSTANCE, LABEL_JOB, container_name
from migration.docker import Docker, EngineSaidError
from migration.images import Images
from migration.missed import MissedEnds
from migration.placing import Placer
from migration.saving import Saver
from migration.settings import Site
from migration.stores.base import Store
from migration.stores.pace import Pace
from migration.ticket import Keys

#: Jobs from here on are canaries of the probe, and nobody else's business.
FIRST_CANARY = JobId(900_000_000_000)
_PHASES = {
    "created": Phase.CREATED,
    "running": Phase.RUNNING,
    "restarting": Phase.RUNNING,
    "paused": Phase.FROZEN,
    "exited": Phase.EXITED,
    "dead": Phase.EXITED,
    "removing": Phase.EXITED,
}


class DockerEngine:
    """The containers of all nodes, for real."""

    def __init__(
        self,
        access: Access,
        site: Site,
        keys: Keys,
        store: Store,
        clock: Clock,
        *,
        pace: Pace | None = None,
    ) -> None:
        """Take the parts; ``pace`` bounds the streams of images, those of the store as well."""
        self._access = access
        self._site = site
        self._store = store
        images = Images(access, pace or Pace(clock, 0.0))
        self._placer = Placer(site, access.engine, keys, store, images=images, clock=clock)
        self._saver = Saver(store, clock)
        self._missed = MissedEnds(clock)
        #: Proven gone by us, so that Docker will soon say the same.
        self._gone: set[SegmentRef] = set()

    @property
    def own_disks(self) -> bool:
        return self._store.on_nodes

    def survey(self, node: NodeName) -> tuple[SegmentView, ...]:
        found = self._listed(node)
        self._missed.look(self._access.of(node).docker, found)
        self._store.answered(node)
        return found

    def _listed(self, node: NodeName) -> tuple[SegmentView, ...]:
        docker = self._access.of(node).docker
        wanted = json.dumps({"label": [f"{LABEL_INSTANCE}={self._site.instance}"]})
        views = [_view(docker, f) for f in docker.get("/containers/json", all=1, filters=wanted)]
        found = [v for v in views if v is not None and v.job < FIRST_CANARY]
        return tuple(sorted(found, key=lambda v: (v.job, v.epoch)))

    def ready(self, node: NodeName) -> None:
        self._listed(node)
        try:
            self._store.ready(node)
        except OSError as exc:
            raise EngineUnreachableError(f"no checkpoint could be written: {exc}") from exc

    def place(self, order: StartOrder) -> Placed:
        return self._placer.place(self._access.of(order.ref.node), order)

    def freeze(self, ref: SegmentRef) -> None:
        if not self._unless_ended(ref, "pause", already="paused"):
            # By us, or only for a checkpoint that it goes on from: then it has to stay so.
            self._access.of(ref.node).shim.freeze(ref.job, ref.epoch)

    def thaw(self, ref: SegmentRef) -> None:
        self._unless_ended(ref, "unpause", already="is not paused")
        # A prolog may have frozen it behind Docker's back.
        self._access.of(ref.node).shim.thaw(ref.job, ref.epoch)

    def checkpoint(self, ref: SegmentRef, *, deadline_seconds: float) -> Saved:
        docker = self._access.of(ref.node).docker
        done = self._saver.checkpoint(docker, self._name(ref), ref, deadline_seconds)
        if done.empty:
            self._gone.add(ref)
        else:
            self.kill(ref)
        return done.saved

    def save(
        self,
        ref: SegmentRef,
        *,
        deadline_seconds: float,
        kind: CheckpointKind = CheckpointKind.PERIODIC,
    ) -> Kept:
        docker = self._access.of(ref.node).docker
        kept = self._saver.save(docker, self._name(ref), ref, kind, deadline_seconds)
        # Before it counts: what a lost node has alone nobody goes on from.
        self._store.spread(ref, kept.checkpoint.generation)
        return kept

    def settled(self, ref: SegmentRef) -> Checkpoint | None:
        return self._saver.settled(ref)

    def checkpoints(self, job: JobId) -> tuple[Checkpoint, ...]:
        try:
            return self._store.checkpoints(job)
        except OSError as exc:
            words = f"the checkpoints of job {job} cannot be read: {exc}"
            raise EngineUnreachableError(words) from exc

    def signal(self, ref: SegmentRef, signal: int) -> None:
        self._unless_ended(ref, "kill", signal=signal)

    def kill(self, ref: SegmentRef) -> None:
        # Not through Docker: its kill may hang, and the shim saves a frozen job before it.
        self._reap(self._access.of(ref.node), ref)
        with suppress(OSError, EngineUnreachableError):
            self._store.note_end(ref)

    def logs(
        self, ref: SegmentRef, *, follow: bool = False, until: datetime | None = None
    ) -> Iterator[bytes]:
        docker = self._access.of(ref.node).docker
        name = self._name(ref)
        if ref in self._gone or self._store.has_ended(ref):
            # Docker notices an end a moment later, and the log is whole only then.
            with suppress(EngineError):
                docker.call("POST", f"/containers/{name}/wait")
        if follow and until is None:
            yield from output.followed(docker, name)
        else:
            yield from output.printed(docker, name, until=until)

    def remove(self, ref: SegmentRef) -> None:
        access = self._access.of(ref.node)
        try:
            where = f"/containers/{self._name(ref)}"
            access.docker.call("DELETE", where, params={"force": 1, "v": 1})
        except EngineSaidError as exc:
            if exc.status not in {404, 409}:
                raise
        self._reap(access, ref)
        self._gone.discard(ref)

    def census(self, node: NodeName) -> Census:
        life = self._access.of(node).shim.census()
        found = (
            CgroupCensus(
                ref=SegmentRef(job=JobId(s.job), epoch=Epoch(s.epoch), node=node),
                processes=s.processes,
                frozen=s.frozen,
            )
            for s in life.segments
            if s.job < FIRST_CANARY
        )
        return Census(boot_id=life.boot_id, segments=tuple(found))

    def forget(self, job: JobId, *, keep: Generation | None = None) -> None:
        try:
            self._store.forget(job, keep=keep)
        except OSError as exc:
            raise EngineError(f"checkpoints of job {job} cannot be deleted: {exc}") from exc

    def where(self, job: JobId) -> Mapping[Generation, tuple[NodeName, ...]]:
        return self._store.where(job)

    def _name(self, ref: SegmentRef) -> str:
        return container_name(self._site.instance, ref)

    def _unless_ended(
        self, ref: SegmentRef, verb: str, *, already: str = "", **params: int
    ) -> bool:
        """Carry out a verb and say so; what has ended, or is so already, needs none."""
        docker = self._access.of(ref.node).docker
        try:
            docker.call("POST", f"/containers/{self._name(ref)}/{verb}", params=params)
        except EngineSaidError as exc:
            harmless = ("is not running", *((already,) if already else ()))
            if exc.status != 404 and not any(words in exc.words for words in harmless):
                raise NodeUnfitError(f"{ref.node} refused to {verb}: {exc.words}") from exc
            return exc.status == 404 or "is not running" in exc.words
        return True

    def _reap(self, access: NodeAccess, ref: SegmentRef) -> None:
        left = access.shim.reap(ref.job, ref.epoch)
        if left:
            raise StillAliveError(f"{left} processes of {self._name(ref)} survived")
        self._gone.add(ref)


def _view(docker: Docker, listed: dict[str, Any]) -> SegmentView | None:
    labels = listed.get("Labels") or {}
    phase = _PHASES.get(listed.get("State", ""), Phase.RUNNING)
    code, oom_killed = None, False
    try:
        job, epoch = JobId(int(labels[LABEL_JOB])), Epoch(int(labels[LABEL_EPOCH]))
        if phase is Phase.EXITED:
            state = docker.get(f"/containers/{listed['Id']}/json")["State"]
            code, oom_killed = int(state["ExitCode"]), bool(state["OOMKilled"])
    except (KeyError, ValueError):
        # Somebody else's container with a label like ours.
        return None
    except EngineSaidError as exc:
        if exc.status == 404:
            return None
        raise
    return SegmentView(
        job=job,
        epoch=epoch,
        container=str(listed["Id"]),
        phase=phase,
        image=str(listed.get("ImageID", "")),
        exit_code=code,
        oom_killed=oom_killed,
    )
