"""Connections to engines that are no TCP: a unix socket, or ssh as the docker command uses it.

docker-py has both.  Its unix connection leaks a socket at every refusal, its ssh needs
paramiko and cannot time out.
"""

import contextlib
import os
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

import urllib3.connection
from docker.transport.basehttpadapter import BaseHTTPAdapter
from urllib3.connectionpool import HTTPConnectionPool

#: Makes a connected socket; its argument is the time-out in seconds.
Opener = Callable[[float], socket.socket]

#: For a piece of a body that nobody takes: whoever reads it may wait for a disk.
_SEND_SECONDS = 60.0

#: Children whose end nobody waits for; taken when the next one starts.
_children: list[int] = []


def opener(address: str) -> Opener | None:
    """Return how an address is connected to, or None for what requests knows by itself."""
    if address.startswith("unix://"):
        path = address.removeprefix("unix://")
        return lambda seconds: open_unix(path, seconds)
    if address.startswith("ssh://"):
        return lambda seconds: open_ssh(ssh_argv(address, seconds), seconds)
    return None


def open_unix(path: str, seconds: float) -> socket.socket:
    """Connect to a unix socket."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(seconds)
        sock.connect(path)
    except OSError:
        sock.close()
        raise
    return sock


def open_ssh(argv: list[str], seconds: float) -> socket.socket:
    """Start a program that passes on what is written to one end of a socket pair."""
    _reap()
    ours, theirs = socket.socketpair()
    actions = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), number) for number in (0, 1)]
    with theirs:
        try:
            child = os.posix_spawnp(argv[0], argv, os.environ, file_actions=actions)
        except OSError:
            ours.close()
            raise
    _children.append(child)
    ours.settimeout(seconds)
    return ours


def ssh_argv(address: str, seconds: float) -> list[str]:
    """
    Return the command that connects to an ssh:// address.

    Raises:
        OSError: there is no host in it.
    """
    parts = urlsplit(address)
    if not parts.hostname:
        raise OSError(f"there is no host in {address}")
    options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={max(1, round(seconds))}"]
    if parts.username:
        options += ["-l", parts.username]
    if parts.port:
        options += ["-p", str(parts.port)]
    return ["ssh", *options, "--", parts.hostname, "docker", "system", "dial-stdio"]


class _Connection(urllib3.connection.HTTPConnection):
    def __init__(self, connect: Opener, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._connect = connect
        self._seconds = seconds

    def connect(self) -> None:
        self.sock = self._connect(self._seconds)
        # What it took to connect says nothing about how long a body takes to be taken.
        self.sock.settimeout(max(self._seconds, _SEND_SECONDS))


class _Pool(HTTPConnectionPool):
    def __init__(self, connect: Opener, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds, maxsize=1)
        self._connect = connect
        self._seconds = seconds

    def _new_conn(self) -> _Connection:
        return _Connection(self._connect, self._seconds)


class SocketAdapter(BaseHTTPAdapter):
    """Lets requests speak through such a socket."""

    def __init__(self, connect: Opener, seconds: float) -> None:
        super().__init__()
        self._pool = _Pool(connect, seconds)

    def get_connection(self, url: object, proxies: object = None) -> _Pool:
        return self._pool

    def request_url(self, request: object, proxies: object) -> str:
        return str(getattr(request, "path_url", "/"))

    def close(self) -> None:
        self._pool.close()


def _reap() -> None:
    for child in list(_children):
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(child, os.WNOHANG) == (0, 0):
                continue
        _children.remove(child)
