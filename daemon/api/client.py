"""The client of the API.

Answers are the documents as the daemon sent them (docs/cli-json.md), with whatever fields
a newer daemon adds.  The standard library speaks HTTP here, because a command line is
started more often than anything else and a bigger library costs each start 0.2 s.
"""

import http.client
import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

#: One JSON object of an answer.
Document = dict[str, Any]

_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 60.0
#: Setting a node up and probing it start containers, which may take minutes.
_NODE_SECONDS = 900.0
_CHUNK_BYTES = 1 << 16


class ClientError(Exception):
    """Base of what the client raises; ``hint`` says what to try next."""

    def __init__(self, error: str, hint: str) -> None:
        super().__init__(error)
        self.error = error
        self.hint = hint


class ClientRefusedError(ClientError):
    """The daemon answered and did not do it; ``status`` is the answer's."""

    def __init__(self, error: str, hint: str, status: int) -> None:
        super().__init__(error, hint)
        self.status = status


class DaemonUnreachableError(ClientError):
    """The daemon did not answer, or its answer broke off."""


class Client:
    """The daemon behind a unix socket.  Every method is one request."""

    def __init__(self, socket_path: Path) -> None:
        self._path = socket_path

    def submit(self, job: Mapping[str, Any]) -> Document:
        """Enqueue a job."""
        return self._one("POST", "/v1/jobs", job)

    def jobs(self, *, all_users: bool = False, ended: bool = False, user: str = "") -> list[Any]:
        """List jobs in order of submission."""
        query = urlencode({"all": all_users, "ended": ended, "user": user}, errors="replace")
        found: list[Any] = self._ask("GET", f"/v1/jobs?{query}")
        return found

    def job(self, job: int) -> Document:
        """Describe one job with its history."""
        return self._one("GET", f"/v1/jobs/{job}")

    def logs(self, job: int, *, follow: bool = False) -> Iterator[bytes]:
        """Yield what the job printed; with ``follow`` until it ends."""
        path = f"/v1/jobs/{job}/logs?{urlencode({'follow': follow})}"
        connection = _Connection(self._path, None if follow else _ANSWER_SECONDS)
        try:
            with self._send(connection, "GET", path, None) as response:
                while chunk := self._read(response):
                    yield chunk
        finally:
            connection.close()

    def cancel(self, job: int) -> Document:
        """Wish for a job to end."""
        return self._one("POST", f"/v1/jobs/{job}/cancel")

    def hold(self, job: int) -> Document:
        """Wish for a job not to run."""
        return self._one("POST", f"/v1/jobs/{job}/hold")

    def release(self, job: int) -> Document:
        """Take a hold back."""
        return self._one("POST", f"/v1/jobs/{job}/release")

    def status(self) -> Document:
        """Sum the daemon's state up."""
        return self._one("GET", "/v1/status")

    def nodes(self) -> list[Any]:
        """List the nodes."""
        found: list[Any] = self._ask("GET", "/v1/nodes")
        return found

    def drain(self, node: str) -> Document:
        """Close a node to jobs."""
        return self._one("POST", _node_path(node, "drain"))

    def undrain(self, node: str) -> Document:
        """Open a node again."""
        return self._one("POST", _node_path(node, "undrain"))

    def gone(self, node: str) -> Document:
        """Say that a node is dead."""
        return self._one("POST", _node_path(node, "gone"))

    def vacate(self, node: str, seconds: float) -> Document:
        """Have a node emptied; returns when it is."""
        path = _node_path(node, "vacate")
        return self._one("POST", path, {"seconds": seconds}, seconds + _ANSWER_SECONDS)

    def panic(self, nodes: Sequence[str] = (), *, over: bool = False) -> list[Any]:
        """Take everything off these nodes, and off all for none; or say that it is over."""
        body = {"nodes": list(nodes), "over": over}
        found: list[Any] = self._ask("POST", "/v1/panic", body)
        return found

    def setup(self, node: str, *, dry_run: bool = False) -> Document:
        """Place the shim on a node, or tell what would be done."""
        path = _node_path(node, "setup")
        return self._one("POST", path, {"dry_run": dry_run}, _NODE_SECONDS)

    def probe(self, node: str) -> Document:
        """Run the canary on a node."""
        return self._one("POST", _node_path(node, "probe"), None, _NODE_SECONDS)

    def _one(
        self, method: str, path: str, body: Any = None, timeout: float = _ANSWER_SECONDS
    ) -> Document:
        document: Document = self._ask(method, path, body, timeout)
        return document

    def _ask(
        self, method: str, path: str, body: Any = None, timeout: float = _ANSWER_SECONDS
    ) -> Any:
        connection = _Connection(self._path, timeout)
        try:
            with self._send(connection, method, path, body) as response:
                text = b"".join(iter(lambda: self._read(response), b""))
            return json.loads(text)
        except ValueError as exc:
            raise self._broken(exc) from exc
        finally:
            connection.close()

    def _send(
        self, connection: "_Connection", method: str, path: str, body: Any
    ) -> http.client.HTTPResponse:
        try:
            connection.connect()
        except OSError as exc:
            raise self._unreachable(exc) from exc
        # Escaped, so that even a command line that is no text arrives and can be refused.
        content = None if body is None else json.dumps(body).encode("ascii")
        try:
            connection.request(method, path, content, {"Content-Type": "application/json"})
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as exc:
            raise self._broken(exc) from exc
        if response.status >= 400:
            with response:
                raise _refusal(response)
        return response

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        try:
            return response.read1(_CHUNK_BYTES)
        except (OSError, http.client.HTTPException) as exc:
            raise self._broken(exc) from exc

    def _unreachable(self, exc: OSError) -> DaemonUnreachableError:
        reason = exc.strerror or str(exc)
        return DaemonUnreachableError(
            f"no daemon answers at {self._path}: {reason}",
            "see systemctl status stopgapd, or name another socket with --socket or STOPGAP_SOCKET",
        )

    def _broken(self, exc: Exception) -> DaemonUnreachableError:
        reason = str(exc) or type(exc).__name__
        return DaemonUnreachableError(
            f"the daemon at {self._path} did not finish its answer: {reason}",
            "what was asked for may have been done: look before asking again",
        )


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float | None) -> None:
        super().__init__("stopgap")
        self._path = path
        self._patience = timeout

    def connect(self) -> None:
        if self.sock is None:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock = sock
            sock.settimeout(_CONNECT_SECONDS)
            sock.connect(str(self._path))
            sock.settimeout(self._patience)


def _node_path(node: str, verb: str) -> str:
    return f"/v1/nodes/{quote(node, safe='', errors='replace')}/{verb}"


def _refusal(response: http.client.HTTPResponse) -> ClientRefusedError:
    try:
        answer = json.loads(response.read(_CHUNK_BYTES))
        return ClientRefusedError(str(answer["error"]), str(answer["hint"]), response.status)
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        text = f"the daemon answered with status {response.status}"
        return ClientRefusedError(text, "its log says more", response.status)
