"""Docker's API through ``ssh HOST docker system dial-stdio``, as the docker command does it.

docker-py brings its own, which needs paramiko and cannot time out.  The socket here is
one end of a socket pair, so every time-out works as on any other connection.
"""

import contextlib
import os
import socket
from urllib.parse import urlsplit

import urllib3.connection
from docker.transport.basehttpadapter import BaseHTTPAdapter
from urllib3.connectionpool import HTTPConnectionPool

#: Children whose end nobody waits for; taken when the next one starts.
_children: list[int] = []


def ssh_argv(address: str, connect_seconds: float) -> list[str]:
    """
    Return the command that connects to an ssh:// address.

    Raises:
        ValueError: there is no host in it.
    """
    parts = urlsplit(address)
    if not parts.hostname:
        raise ValueError(f"there is no host in {address}")
    options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={max(1, round(connect_seconds))}"]
    if parts.username:
        options += ["-l", parts.username]
    if parts.port:
        options += ["-p", str(parts.port)]
    return ["ssh", *options, "--", parts.hostname, "docker", "system", "dial-stdio"]


class _Connection(urllib3.connection.HTTPConnection):
    def __init__(self, argv: list[str], timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._argv = argv

    def connect(self) -> None:
        _reap()
        ours, theirs = socket.socketpair()
        actions = [
            (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
            (os.POSIX_SPAWN_DUP2, theirs.fileno(), 1),
        ]
        with theirs:
            _children.append(
                os.posix_spawnp(self._argv[0], self._argv, os.environ, file_actions=actions)
            )
        ours.settimeout(self.timeout if isinstance(self.timeout, (int, float)) else None)
        self.sock = ours


class _Pool(HTTPConnectionPool):
    def __init__(self, argv: list[str], timeout: float) -> None:
        super().__init__("localhost", timeout=timeout, maxsize=1)
        self._argv = argv
        self._seconds = timeout

    def _new_conn(self) -> _Connection:
        return _Connection(self._argv, self._seconds)


class SshAdapter(BaseHTTPAdapter):
    """Connects requests to an engine behind ssh."""

    def __init__(self, address: str, connect_seconds: float) -> None:
        super().__init__()
        self._pool = _Pool(ssh_argv(address, connect_seconds), connect_seconds)

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
