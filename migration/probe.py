"""The probe: does a real job survive here?  A canary is saved and resumed three times.

It goes the way that every job goes, through the same orders and the same engine, so
what it finds out is true of jobs.
"""

import io
import json
import tarfile
import zlib
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from daemon.clock import Clock
from daemon.core.types import Epoch, Generation, JobId, JobSpec, Mount, NodeName, Owner, SegmentRef
from migration.access import Access, NodeAccess
from migration.base import EngineError, EngineUnreachableError, StartOrder
from migration.container import LABEL_EPOCH, LABEL_INSTANCE, LABEL_JOB
from migration.docker import EngineSaidError, name_part
from migration.engine import FIRST_CANARY, DockerEngine
from migration.nodes import CANARY
from migration.settings import Site, at
from migration.stores.base import Store
from migration.ticket import Keys
from migration.words import PROLOG_CAME, plain

ROUNDS = 3
IMAGE, IMAGE_TAG = "stopgap/canary", "1"
#: Anybody but root, for whom CRIU needs a capability more.
_NOBODY = Owner(uid=65534, gid=65534)
_ROOT = Owner(uid=0, gid=0)
#: In the image, so that one mount brings the node's programs: CRIU restores no mount
#: whose source is a symbolic link, as these are on the node.
_LINKS = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64"}
_PATIENCE = timedelta(seconds=30)
_DEADLINE_SECONDS = 60.0
_LINES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One checkpoint and the resume from it."""

    checkpoint_seconds: float
    resume_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What the canary found."""

    passed: bool
    #: What stands in the way; with ``passed``, what stands in other users' way.
    reason: str
    #: Whether jobs of others than root can be saved here.
    other_users: bool
    figures: tuple[Round, ...]
    seconds: float

    @property
    def interrupted(self) -> bool:
        """A prolog claimed the node in the middle: nothing was found out about it."""
        return not self.passed and PROLOG_CAME in self.reason

    @property
    def rounds(self) -> int:
        """How many times the canary came through."""
        return len(self.figures)


class CanaryLostError(EngineError):
    """The canary came back, but not whole."""


class Prober:
    """Runs the canary on nodes."""

    def __init__(self, access: Access, site: Site, keys: Keys, store: Store, clock: Clock) -> None:
        self._access = access
        self._clock = clock
        self._instance = site.instance
        # The canary runs on the node's own programs.
        whole = replace(site, mounts=("/",))
        self._engine = DockerEngine(access, whole, keys, store, clock)

    def probe(self, node: NodeName) -> Probe:
        """
        Run the canary as an ordinary user, and where that fails as root.

        Raises:
            EngineUnreachableError: the node does not answer.
        """
        began = self._clock.monotonic()
        access = self._access.of(node)
        # A prolog from now on ends the probe: nobody has said since that the node is free.
        seen = self._clock.now()
        access.host.sweep(seen)
        self._import_image(access)
        figures, reason = self._tried(node, _NOBODY, seen)
        other_users = not reason
        if reason:
            figures, root_reason = self._tried(node, _ROOT, seen)
            reason = root_reason or f"jobs of users other than root cannot be saved: {reason}"
            passed = not root_reason
        else:
            passed = True
        return Probe(
            passed=passed,
            reason=reason,
            other_users=other_users,
            figures=figures,
            seconds=self._clock.monotonic() - began,
        )

    def clear(self, node: NodeName) -> None:
        """
        End the canary that a killed daemon may have left on the node.

        Raises:
            EngineUnreachableError: the node does not answer.
        """
        docker = self._access.of(node).docker
        job = _job(node)
        labels = [f"{LABEL_INSTANCE}={self._instance}", f"{LABEL_JOB}={job}"]
        for found in docker.get("/containers/json", all=1, filters=json.dumps({"label": labels})):
            epoch = Epoch(int(found["Labels"][LABEL_EPOCH]))
            ref = SegmentRef(job=job, epoch=epoch, node=node)
            self._engine.kill(ref)
            self._engine.remove(ref)
            self._engine.forget(job)

    def _tried(self, node: NodeName, owner: Owner, seen: datetime) -> tuple[tuple[Round, ...], str]:
        try:
            return self._flight(self._order(node, owner, seen)), ""
        except EngineUnreachableError:
            raise
        except EngineError as exc:
            return (), plain(str(exc))

    def _flight(self, order: StartOrder) -> tuple[Round, ...]:
        figures: list[Round] = []
        log = b""
        try:
            self._engine.place(order)
            self._await_lines(order.ref, log)
            for _ in range(ROUNDS):
                saved = self._engine.checkpoint(order.ref, deadline_seconds=_DEADLINE_SECONDS)
                log += b"".join(self._engine.logs(order.ref))
                self._engine.remove(order.ref)
                order = _resumed(order, saved.checkpoint.generation)
                placed = self._engine.place(order)
                self._await_lines(order.ref, log)
                figures.append(
                    Round(checkpoint_seconds=saved.vacate_seconds, resume_seconds=placed.seconds)
                )
            return tuple(figures)
        finally:
            self._engine.remove(order.ref)
            self._engine.forget(order.ref.job)

    def _order(self, node: NodeName, owner: Owner, seen: datetime) -> StartOrder:
        program = f"{at(self._access.nodes.install_dir, node)}/{CANARY}"
        mounts = (
            Mount(source="/usr", target="/usr", read_only=True),
            Mount(source=program, target=f"/{CANARY}", read_only=True),
        )
        spec = JobSpec(
            name="canary",
            owner=owner,
            image=f"{IMAGE}:{IMAGE_TAG}",
            command=("/usr/bin/python3", "-I", "-S", f"/{CANARY}"),
            memory_mib=256,
            mounts=mounts,
        )
        ref = SegmentRef(
            job=_job(node),
            # Later than all of earlier probes, whose tickets are used up.
            epoch=Epoch(int(self._clock.now().timestamp() * 1000)),
            node=node,
        )
        return StartOrder(ref=ref, spec=spec, env={}, image_digest=None, seen=seen)

    def _await_lines(self, ref: SegmentRef, before: bytes) -> None:
        """Wait until the segment has printed some lines, and check all that there are."""
        until = self._clock.now() + _PATIENCE
        text = b""
        pause = 0.02
        while text.count(b"\n") < _LINES:
            if self._clock.now() > until:
                raise CanaryLostError(f"the canary said nothing more than {text.decode()!r}")
            self._clock.wait(pause)
            # The canary gives way to everybody: asking too often keeps it from its few lines.
            pause = min(1.0, pause * 1.5)
            text = b"".join(self._engine.logs(ref))
        check_song(before + text)

    @staticmethod
    def _import_image(access: NodeAccess) -> None:
        try:
            access.docker.get(f"/images/{name_part(f'{IMAGE}:{IMAGE_TAG}')}/json")
        except EngineSaidError as exc:
            if exc.status != 404:
                raise
            source = {"fromSrc": "-", "repo": IMAGE, "tag": IMAGE_TAG}
            access.docker.call("POST", "/images/create", params=source, content=_image())


def _job(node: NodeName) -> JobId:
    return JobId(FIRST_CANARY + zlib.crc32(node.encode()))


def _resumed(order: StartOrder, generation: Generation) -> StartOrder:
    ref = replace(order.ref, epoch=Epoch(order.ref.epoch + 1))
    return replace(order, ref=ref, generation=generation)


def check_song(log: bytes) -> None:
    """
    Check that the canary's lines are all there, each once, and without complaint.

    Raises:
        CanaryLostError: they are not.
    """
    lines = log[: log.rfind(b"\n") + 1].decode(errors="replace").splitlines()
    for number, line in enumerate(lines):
        if line != f"{number} ok":
            raise CanaryLostError(f"the canary's line {number} is {line!r}")


def _image() -> bytes:
    """Return an archive of a root with the usual links and a folder that all may write."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for name, target in _LINKS.items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
        folder = tarfile.TarInfo("tmp")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
        archive.addfile(folder)
    return sink.getvalue()
