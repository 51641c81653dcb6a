"""The API and the hook listener as servers: each in a thread of its own."""

import asyncio
import contextlib
import socket
import stat
import threading
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from daemon.api import app as api
from daemon.api import hooks
from daemon.api.identity import PeerProtocol
from daemon.api.ports import Desk

_START_SECONDS = 10.0
#: What runs then is cut off: followers of logs would stay for ever.
_STOP_SECONDS = 1


class ListenError(Exception):
    """The address cannot be listened at; the message says what to do."""


class ApiServer:
    """Serves the desk on a unix socket that everybody may connect to."""

    def __init__(self, socket_path: Path, desk: Desk, *, admin_group: str = "root") -> None:
        self._path = socket_path
        self._desk = desk
        self._admin_group = admin_group
        self._thread: _ServerThread | None = None
        self._inode: int | None = None

    def start(self) -> None:
        """
        Begin to answer.

        Raises:
            ListenError: the socket cannot be made, or somebody answers there.
        """
        sock = _listen_unix(self._path)
        self._inode = self._path.stat().st_ino
        application = api.create(self._desk, self._admin_group)
        self._thread = _ServerThread("api", application, sock, PeerProtocol)
        self._thread.start()

    def stop(self) -> None:
        """Stop answering and remove the socket, if it still is ours; idempotent."""
        if self._thread is not None:
            self._thread.stop()
            self._thread = None
            with contextlib.suppress(FileNotFoundError):
                if self._path.stat().st_ino == self._inode:
                    self._path.unlink()


class HookServer:
    """Takes the calls of the nodes' prologs over TCP."""

    def __init__(self, host: str, port: int, desk: Desk) -> None:
        self._host = host
        self._desk = desk
        #: Where it listens once started; 0 lets the kernel choose.
        self.port = port
        self._thread: _ServerThread | None = None

    def start(self) -> None:
        """
        Begin to answer.

        Raises:
            ListenError: the address cannot be used.
        """
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            sock = socket.create_server((self._host, self.port), family=family, backlog=256)
        except OSError as exc:
            raise ListenError(
                f"cannot listen at {self._host}:{self.port}: {exc.strerror}; "
                "change daemon.hook_listen, or stop what listens there"
            ) from exc
        self.port = sock.getsockname()[1]
        self._thread = _ServerThread("hooks", hooks.create(self._desk), sock, hooks.BriefProtocol)
        self._thread.start()

    def stop(self) -> None:
        """Stop answering; idempotent."""
        if self._thread is not None:
            self._thread.stop()
            self._thread = None


class _Server(uvicorn.Server):
    """uvicorn without its ten wake-ups a second: an idle daemon sleeps."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()
        self._leave = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self.ready.set()

    async def main_loop(self) -> None:
        await self._leave.wait()

    def leave(self) -> None:
        """Ask for the end, from any thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._leave.set)


class _ServerThread:
    def __init__(
        self, name: str, app: FastAPI, sock: socket.socket, protocol: type[H11Protocol]
    ) -> None:
        self._sock = sock
        config = uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # nobody may say who he is
            server_header=False,
            date_header=False,
            limit_concurrency=2048,
            timeout_graceful_shutdown=_STOP_SECONDS,
        )
        self._server = _Server(config)
        # A thread that still waits for a node must not keep the process: daemon=True is
        # inherited by the threads that the event loop starts.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()
        if not self._server.ready.wait(_START_SECONDS):
            raise ListenError("the server did not start; its log says more")

    def stop(self) -> None:
        self._server.leave()
        self._thread.join(_STOP_SECONDS + 3)

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._sock]))


def _listen_unix(path: Path) -> socket.socket:
    """Make the socket beside its place and move it there: it appears open to all, or not."""
    _refuse_taken(path)
    part = path.with_name(f".{path.name}")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if not path.parent.exists():
            path.parent.mkdir(parents=True)
            path.parent.chmod(0o755)  # whatever the umask is: users must get through
        part.unlink(missing_ok=True)
        sock.bind(str(part))
        part.chmod(0o666)
        sock.listen(256)
        part.replace(path)
    except OSError as exc:
        sock.close()
        reason = exc.strerror or str(exc)
        raise ListenError(f"cannot listen at {path}: {reason}; change daemon.socket") from exc
    return sock


def _refuse_taken(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ListenError(f"{path} is not a socket; remove it, or change daemon.socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return  # left behind by a daemon that is gone
        except OSError as exc:
            raise ListenError(f"{path} is in use: {exc}") from exc
    raise ListenError(f"a daemon answers at {path} already; stop it, or change daemon.socket")
