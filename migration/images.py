"""Images of jobs: what they say about themselves, and how a node comes to one that it lacks.

By digest from the registry that it was pulled from, otherwise from another node that has it.
In both cases it counts only if it has the very same id afterwards.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from typing import Any

import structlog

from migration import words
from migration.access import Access, NodeAccess
from migration.base import EngineError, NodeUnfitError, StartOrder
from migration.container import ImageFacts, check_image
from migration.docker import Docker, EngineSaidError, name_part
from migration.locks import Locks
from migration.settings import ImageSource
from migration.stores.pace import Pace

_log = structlog.get_logger(__name__)

_PIECE_BYTES = 1 << 18
#: For a piece that does not come, or is not taken, and for a registry that says nothing.
_SILENCE_SECONDS = 60.0
#: Nodes that are asked at the same time whether they have an image.
_ASKED_AT_ONCE = 16


class Images:
    """The images of all nodes; what a digest says about itself never changes."""

    def __init__(self, access: Access, pace: Pace) -> None:
        self._access = access
        self._pace = pace
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], ImageFacts] = {}
        #: By node and image: jobs that want the same one wait for it.
        self._coming: Locks[tuple[str, str]] = Locks()

    def of(self, access: NodeAccess, order: StartOrder) -> ImageFacts:
        """
        Return the facts of the order's image on that node, and have it there.

        Raises:
            OrderRefusedError: there is no such image, or no job may use it.
            NodeUnfitError: only this node lacks it, and it could not be brought.
        """
        docker, name = access.docker, order.image_digest or order.spec.image
        key = (docker.address, name)
        with self._lock:
            known = self._known.get(key)
        if known is not None:
            return known
        said = _inspected(docker, name)
        if said is None:
            with self._coming.of(key):
                said = _inspected(docker, name) or self._brought(access, order, name)
        facts = _image_facts(said)
        check_image(order.spec.image, facts)
        if order.image_digest is not None:
            with self._lock:
                self._known[key] = facts
        return facts

    def drop(self, docker: Docker, order: StartOrder) -> None:
        """Forget an image that the engine turned out not to have."""
        with self._lock:
            self._known.pop((docker.address, order.image_digest or order.spec.image), None)

    def _brought(self, access: NodeAccess, order: StartOrder, name: str) -> dict[str, Any]:
        source = self._access.engine.images
        if source is ImageSource.NOWHERE:
            raise words.missing_image(order)
        found = self._found(access, name)
        if found is None:
            raise words.missing_image(order, anywhere=True)
        there, said = found
        wanted = str(said["Id"])
        if source is ImageSource.REGISTRY:
            _pull(access.docker, said)
        if _inspected(access.docker, wanted) is None:
            self._carry(there, access, wanted)
        here = _inspected(access.docker, wanted)
        if here is None or here["Id"] != wanted:
            raise NodeUnfitError(
                f"image {name} was brought to {access.name} from {there.name}, and is not "
                f"{wanted} there"
            )
        _name(access.docker, wanted, order.spec.image)
        _log.info("image.brought", image=name, id=wanted, node=access.name, source=there.name)
        return here

    def _found(self, access: NodeAccess, name: str) -> tuple[NodeAccess, dict[str, Any]] | None:
        """Return another node that has the image, and what it says about it."""
        others = [node for node in self._access.known() if node.name != access.name]
        pool = ThreadPoolExecutor(_ASKED_AT_ONCE, thread_name_prefix="image")
        try:
            asked = {pool.submit(_inspected, node.docker, name): node for node in others}
            for answer in as_completed(asked):
                with suppress(EngineError):
                    said = answer.result()
                    if said is not None:
                        return asked[answer], said
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        return None

    def _carry(self, source: NodeAccess, target: NodeAccess, image: str) -> None:
        """Stream the image from one engine to the other."""
        where = f"/images/{name_part(image)}/get"
        try:
            with source.docker.stream(where, silence_seconds=_SILENCE_SECONDS) as answer:
                pieces: Iterator[bytes] = answer.iter_content(_PIECE_BYTES)
                target.docker.upload(
                    "POST",
                    "/images/load",
                    self._pace.held(pieces),
                    params={"quiet": 1},
                    silence_seconds=_SILENCE_SECONDS,
                )
        except EngineError as exc:
            raise NodeUnfitError(
                f"image {image} could not be brought from {source.name} to {target.name}: {exc}"
            ) from exc


def _inspected(docker: Docker, name: str) -> dict[str, Any] | None:
    """Return what an engine says about an image; None when it has none of that name."""
    try:
        return dict(docker.get(f"/images/{name_part(name)}/json"))
    except EngineSaidError as exc:
        if exc.status in {400, 404}:
            return None
        raise


def _pull(docker: Docker, said: dict[str, Any]) -> None:
    """Have the engine pull what the image was pulled as, by its digest."""
    for pinned in said.get("RepoDigests") or ():
        repository, _, digest = pinned.partition("@")
        # Whether it has worked is seen from the image, not from the answer.
        with suppress(EngineError):
            params = {"fromImage": repository, "tag": digest}
            docker.call("POST", "/images/create", params=params, seconds=_SILENCE_SECONDS)
            if _inspected(docker, said["Id"]) is not None:
                return


def _name(docker: Docker, image: str, name: str) -> None:
    """Name the image as its job does, if none is called so: ``prune`` takes the nameless."""
    if "@" in name or _inspected(docker, name) is not None:
        return
    repository, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        repository, tag = name, "latest"
    with suppress(EngineError):
        params = {"repo": repository, "tag": tag}
        docker.call("POST", f"/images/{name_part(image)}/tag", params=params)


def _image_facts(said: dict[str, Any]) -> ImageFacts:
    config = said.get("Config") or {}
    return ImageFacts(
        id=said["Id"],
        env=tuple(config.get("Env") or ()),
        volumes=tuple(sorted(config.get("Volumes") or ())),
    )
