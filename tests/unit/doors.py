"""A running door: the real server over a real socket, around a desk in memory."""

import grp
import http.client
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from daemon.api.server import ApiServer
from daemon.clock import SystemClock
from tests.unit.counter import Counter


@contextmanager
def opened(path: Path, desk: Counter) -> Iterator[Path]:
    """Serve a desk to which whoever runs the tests is an administrator."""
    server = ApiServer(path, desk, admin_group=my_group())
    server.start()
    try:
        yield path
    finally:
        desk.may_go_on.set()
        server.stop()


def my_group() -> str:
    """Return the name of this process's group."""
    return grp.getgrgid(os.getgid()).gr_name


class UnixConnection(http.client.HTTPConnection):
    """HTTP without the client, for what the client never sends."""

    def __init__(self, path: Path) -> None:
        super().__init__("stopgap", timeout=10)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(10)
        self.sock.connect(str(self._path))


def ask(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, Any]:
    """Make one call; return its status and its document."""
    connection.request(method, path, body, headers or {})
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response.status, json.loads(text)


def until(true: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for a condition."""
    clock = SystemClock()
    end = clock.monotonic() + seconds
    while not true():
        assert clock.monotonic() < end, "it never became true"
        clock.wait(0.01)
