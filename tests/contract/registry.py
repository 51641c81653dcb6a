"""A registry of images with one image in it, on the loopback, as engines speak to one."""

import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


@dataclass
class Registry:
    """What it has, and what it was asked for."""

    blobs: dict[str, bytes]
    manifest: bytes
    address: str = ""
    #: Digests of blobs and manifests, in the order in which they were fetched.
    fetched: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The image's name, as ``docker pull`` takes it."""
        return f"{self.address}/served:1"


def registry_of(saved: bytes) -> Registry:
    """Return a registry with the image that ``docker save`` has written."""
    with tarfile.open(fileobj=io.BytesIO(saved)) as archive:

        def read(name: str) -> bytes:
            file = archive.extractfile(name)
            assert file is not None
            return file.read()

        (image,) = json.loads(read("manifest.json"))
        config = read(image["Config"])
        layers = [gzip.compress(read(name), 1, mtime=0) for name in image["Layers"]]
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": _described(_CONFIG, config),
        "layers": [_described(_LAYER, layer) for layer in layers],
    }
    blobs = {_digest(blob): blob for blob in (config, *layers)}
    return Registry(blobs=blobs, manifest=json.dumps(manifest).encode())


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _described(kind: str, content: bytes) -> dict[str, object]:
    return {"mediaType": kind, "size": len(content), "digest": _digest(content)}


@contextmanager
def serving(registry: Registry) -> Iterator[Registry]:
    """Serve it until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def answer(self) -> None:
            kind, wanted = self.path.rstrip("/").split("/")[-2:]
            content: bytes | None = b"{}"
            if kind == "blobs":
                content = registry.blobs.get(wanted)
            elif kind == "manifests":
                content = registry.manifest
            if content is None:
                self.send_error(404)
                return
            if self.command == "GET" and kind in {"blobs", "manifests"}:
                registry.fetched.append(_digest(content))
            self.send_response(200)
            manifest = kind == "manifests"
            self.send_header("Content-Type", _MANIFEST if manifest else "application/octet-stream")
            self.send_header("Docker-Content-Digest", _digest(content))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        # The names are the base class's.
        do_GET = do_HEAD = answer  # noqa: N815  # as above

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.address = f"127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
