"""Starting or resuming one segment: image, container, start; or nothing at all is left."""

from contextlib import suppress
from typing import Any

from daemon.clock import Clock
from migration import words
from migration.access import NodeAccess
from migration.base import Placed, StaleOrderError, StartOrder, StillAliveError
from migration.container import (
    container_name,
    create_body,
    make_ticket,
)
from migration.docker import EngineSaidError
from migration.host import HostFile, archive_of
from migration.images import Images
from migration.settings import EngineSettings, Site
from migration.stores.base import Store
from migration.ticket import Keys

#: A node that was idle so long ago may not be so now, and not every one has a hook that tells.
_FRESH_SECONDS = 30.0
#: What Docker gives as the start of a container that was never started.
_NEVER = "0001-01-01T00:00:00Z"


class Placer:
    """Carries out start orders."""

    def __init__(
        self,
        site: Site,
        settings: EngineSettings,
        keys: Keys,
        store: Store,
        *,
        images: Images,
        clock: Clock,
    ) -> None:
        self._site = site
        self._settings = settings
        self._keys = keys
        self._store = store
        self._clock = clock
        self._images = images

    def place(self, access: NodeAccess, order: StartOrder) -> Placed:
        """Carry out an order as ``Engine.place`` promises."""
        began = self._clock.monotonic()
        image = self._images.of(access, order)
        self._store.prepare(order.ref, order.generation)
        self._check_fresh(order, self._clock.monotonic() - began)
        body = create_body(
            order,
            image,
            self._site,
            access.docker.facts(),
            make_ticket(order, self._site, self._keys),
        )
        name = container_name(self._site.instance, order.ref)
        placed = self._create(access, order, name, body)
        if placed is None:
            placed = self._create(access, order, name, body)
        if placed is None:
            raise EngineSaidError(409, f"the name {name} is taken")
        container, new = placed
        if new:
            if order.generation is None:
                self._furnish(access, order, name, str(body["Hostname"]))
            self._start(access, order, name)
        seconds = self._clock.monotonic() - began
        return Placed(
            container=container,
            image_digest=image.id,
            seconds=seconds,
            changed=self._changed(order),
        )

    @staticmethod
    def _check_fresh(order: StartOrder, seconds: float) -> None:
        if seconds > _FRESH_SECONDS:
            raise StaleOrderError(
                f"what it needs has come to {order.ref.node} in {seconds:.0f} s; it is placed as "
                "soon as the node is found idle once more"
            )

    def _changed(self, order: StartOrder) -> tuple[str, ...]:
        receipt = None
        if order.after_crash is not None:
            receipt = self._store.resume_receipt(order.ref)
        return receipt.changed if receipt else ()

    def _create(
        self, access: NodeAccess, order: StartOrder, name: str, body: dict[str, Any]
    ) -> tuple[str, bool] | None:
        """Return the container and whether it is to be started; None is another try."""
        params = {"name": name}
        try:
            answer = access.docker.call("POST", "/containers/create", params=params, body=body)
        except EngineSaidError as exc:
            if exc.status == 409:
                return self._existing(access, order, name)
            if exc.status == 404 and "image" in exc.words.lower():
                self._images.drop(access.docker, order)
                raise words.missing_image(order) from exc
            raise words.refused_create(exc, order) from exc
        return str(answer.json()["Id"]), True

    def _existing(
        self, access: NodeAccess, order: StartOrder, name: str
    ) -> tuple[str, bool] | None:
        """Adopt a container that was started before; clear one that was not out of the way."""
        try:
            found = access.docker.get(f"/containers/{name}/json")
        except EngineSaidError as exc:
            if exc.status == 404:
                return None
            raise
        if found["State"]["StartedAt"] != _NEVER:
            return str(found["Id"]), False
        self._clear(access, order, name)
        return None

    def _furnish(self, access: NodeAccess, order: StartOrder, name: str, hostname: str) -> None:
        """
        Give the job the names of its own machine; a resumed one brings them along.

        Docker leaves the file empty when it is told to make no network.
        """
        hosts = f"127.0.0.1\tlocalhost {hostname}\n::1\tlocalhost ip6-localhost\n"
        content = archive_of({"hosts": HostFile(content=hosts.encode(), mode=0o644)})
        where = f"/containers/{name}/archive"
        try:
            access.docker.call("PUT", where, params={"path": "/etc"}, content=content)
        except EngineSaidError as exc:
            self._clear(access, order, name)
            raise words.refused_start(exc, order, None) from exc

    def _start(self, access: NodeAccess, order: StartOrder, name: str) -> None:
        seconds = self._settings.timeout_seconds
        if order.generation is not None:
            seconds += self._settings.resume_seconds
        try:
            access.docker.call("POST", f"/containers/{name}/start", seconds=seconds)
        except EngineSaidError as exc:
            receipt = None
            if order.generation is not None:
                receipt = self._store.resume_receipt(order.ref)
            self._clear(access, order, name)
            raise words.refused_start(exc, order, receipt) from exc

    def _clear(self, access: NodeAccess, order: StartOrder, name: str) -> None:
        """Prove that nothing of the segment lives, and remove its container."""
        left = access.shim.reap(order.ref.job, order.ref.epoch)
        with suppress(EngineSaidError):
            access.docker.call("DELETE", f"/containers/{name}", params={"force": 1, "v": 1})
        if left:
            raise StillAliveError(f"{left} processes of {name} survived a failed start")
