"""An engine's HTTP on a unix socket, for the answers that no real engine gives on demand."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any

#: (method, path without version and query) and the body, to status and document or bytes.
Answer = tuple[int, object]
Route = Callable[[Any], Answer]

VERSION = {"Version": "28.0", "ApiVersion": "1.48", "MinAPIVersion": "1.24"}


class DropError(Exception):
    """Raised by a route to close the connection without an answer."""


class StubEngine:
    """Answers what it was told to; everything else is 404 in Docker's own words."""

    def __init__(self, path: Path) -> None:
        self.address = f"unix://{path}"
        self.routes: dict[tuple[str, str], Route] = {("GET", "/version"): lambda _: (200, VERSION)}
        #: Every request that came, with its version.
        self.asked: list[str] = []
        #: Set when the test is over: what hangs may end then.
        self.over = threading.Event()

    def hang(self, _: object) -> Answer:
        """Accept and never answer."""
        self.over.wait(30)
        raise DropError

    @staticmethod
    def drop(_: object) -> Answer:
        """Close the connection without a word."""
        raise DropError


@contextmanager
def serving(path: Path) -> Iterator[StubEngine]:
    """Serve a stub on a unix socket until the block ends."""
    stub = StubEngine(path)

    class Server(ThreadingMixIn, UnixStreamServer):
        daemon_threads = False

    with Server(str(path), _handler(stub)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield stub
        finally:
            stub.over.set()
            server.shutdown()
            thread.join()


def _handler(stub: StubEngine) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # A kept connection would keep the server's thread.
        timeout = 0.5

        def log_message(self, *_: object) -> None:
            pass

        def address_string(self) -> str:
            return "unix"

        def answer(self) -> None:
            stub.asked.append(f"{self.command} {self.path}")
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size) or b"null")
            path = self.path.partition("?")[0]
            if path.startswith("/v1."):
                path = "/" + path.split("/", 2)[2]
            route = stub.routes.get((self.command, path))
            try:
                status, said = route(body) if route else (404, {"message": f"no {path}"})
            except DropError:
                self.close_connection = True
                return
            content = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        # The names are the base class's.
        do_GET = do_POST = do_DELETE = do_PUT = answer  # noqa: N815  # as above

    return Handler
