"""A thin client for one engine: docker-py's session, our own time-outs, and the calls it lacks.

Every call ends, with an answer, with ``EngineSaidError`` (the engine's own words) or with
``EngineUnreachableError``.  What a call means for a job is not known here.
"""

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import docker
import requests
import urllib3.exceptions
from docker.errors import DockerException
from docker.tls import TLSConfig

from migration.base import EngineError, EngineUnreachableError, NodeUnfitError
from migration.settings import EngineSettings
from migration.sockets import SocketAdapter, opener

#: The API of Docker 20.10, and the newest whose answers we have read.
OLDEST, NEWEST = (1, 41), (1, 51)
_SILENCE = (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, OSError)


class EngineSaidError(EngineError):
    """The engine answered with an error."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status
        self.words = words


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """What is asked once for as long as an engine answers."""

    version: str
    cgroup_driver: str
    experimental: bool
    blkio_weight: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    method: str
    path: str
    params: Mapping[str, str | int] | None = None
    #: Pieces are sent as they come.
    content: bytes | Iterable[bytes] | None = None
    headers: Mapping[str, str] | None = None
    seconds: float | None = None
    stream: bool = False

    @property
    def sends_pieces(self) -> bool:
        return not isinstance(self.content, bytes | None)


class Docker:
    """One node's engine; may be used by any number of threads."""

    def __init__(self, address: str, settings: EngineSettings) -> None:
        self.address = address
        self._settings = settings
        self._lock = threading.Lock()
        self._idle: list[docker.APIClient] = []
        self._version: str | None = None
        self._facts: EngineFacts | None = None

    def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        body: object = None,
        content: bytes | None = None,
        seconds: float | None = None,
    ) -> requests.Response:
        """
        Carry out one call and return the whole answer; ``body`` is sent as JSON.

        Raises:
            EngineUnreachableError: no answer in time.
            EngineSaidError: the engine refused.
        """
        headers = None
        if body is not None:
            content, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
        asked = _Call(
            method=method,
            path=path,
            params=params,
            content=content,
            headers=headers,
            seconds=seconds,
        )
        with self._answer(asked) as answer:
            return answer

    def get(self, path: str, **params: str | int) -> Any:
        """Return a JSON document."""
        return self.call("GET", path, params=params).json()

    @contextmanager
    def stream(
        self, path: str, *, silence_seconds: float | None, **params: str | int
    ) -> Iterator[requests.Response]:
        """Open an answer that is read piece by piece; silence of that length ends it."""
        asked = _Call(method="GET", path=path, params=params, seconds=silence_seconds, stream=True)
        with self._answer(asked) as answer:
            yield answer

    @contextmanager
    def attach(self, container: str, *, silence_seconds: float) -> Iterator[requests.Response]:
        """Open what a container prints from now on, in the same way."""
        asked = _Call(
            method="POST",
            path=f"/containers/{container}/attach",
            params={"stream": 1, "stdout": 1, "stderr": 1},
            seconds=silence_seconds,
            stream=True,
        )
        with self._answer(asked) as answer:
            yield answer

    def upload(
        self,
        method: str,
        path: str,
        pieces: Iterable[bytes],
        *,
        params: Mapping[str, str | int],
        silence_seconds: float,
    ) -> None:
        """
        Send a body piece by piece as it comes; what its maker raises comes through.

        Raises:
            EngineUnreachableError: nobody took it, for that long.
            EngineSaidError: the engine refused.
        """
        asked = _Call(
            method=method, path=path, params=params, content=pieces, seconds=silence_seconds
        )
        with self._answer(asked):
            pass

    def facts(self) -> EngineFacts:
        """Return what the engine says about itself, asked once until it fails to answer."""
        facts = self._facts
        if facts is None:
            info = self.get("/info")
            warnings = " ".join(info.get("Warnings") or ())
            facts = self._facts = EngineFacts(
                version=info.get("ServerVersion", ""),
                cgroup_driver=info.get("CgroupDriver", "cgroupfs"),
                experimental=bool(info.get("ExperimentalBuild")),
                blkio_weight="No blkio weight support" not in warnings,
            )
        return facts

    def forget(self) -> None:
        """Ask everything anew at the next call; the engine may be another one by then."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._version = self._facts = None
        for client in idle:
            client.close()

    @contextmanager
    def _answer(self, asked: _Call) -> Iterator[requests.Response]:
        try:
            with self._client() as client:
                answer = client.request(
                    asked.method,
                    f"{client.base_url}/v{self._negotiated(client)}{asked.path}",
                    params=asked.params,
                    data=asked.content,
                    headers=asked.headers,
                    timeout=self._timeout(asked.seconds, patient=asked.sends_pieces),
                    stream=asked.stream,
                )
                with answer:
                    _check(answer)
                    yield answer
        except (*_SILENCE, DockerException) as exc:
            self.forget()
            words = f"{self.address}: {asked.method} {asked.path}: {exc}"
            raise EngineUnreachableError(words) from exc

    @contextmanager
    def _client(self) -> Iterator[docker.APIClient]:
        """Lend a session: they are not made for two threads at once."""
        with self._lock:
            client = self._idle.pop() if self._idle else None
        client = client or self._connect()
        try:
            yield client
        except EngineSaidError:
            self._take_back(client)
            raise
        except BaseException:
            client.close()
            raise
        self._take_back(client)

    def _take_back(self, client: docker.APIClient) -> None:
        with self._lock:
            self._idle.append(client)

    def _connect(self) -> docker.APIClient:
        seconds, address = self._settings.connect_seconds, self.address
        tls: TLSConfig | bool = False
        if self._settings.cert_dir and address.startswith("tcp://"):
            folder = self._settings.cert_dir
            pair = (f"{folder}/cert.pem", f"{folder}/key.pem")
            tls = TLSConfig(client_cert=pair, ca_cert=f"{folder}/ca.pem", verify=True)
        connect = opener(address)
        # A version is given only so that the constructor asks nobody: that could hang.
        client = docker.APIClient(
            base_url=address if connect is None else "unix:///dev/null",
            version="1.41",
            timeout=int(seconds) or 1,
            tls=tls,
        )
        if connect is not None:
            client.mount("http+docker://", SocketAdapter(connect, seconds))
        # Neither proxies nor .netrc are meant for engines.
        client.trust_env = False
        return client

    def _negotiated(self, client: docker.APIClient) -> str:
        if self._version is None:
            answer = client.get(f"{client.base_url}/version", timeout=self._timeout(None))
            _check(answer)
            self._version = _common_version(answer.json())
        return self._version

    def _timeout(self, seconds: float | None, *, patient: bool = False) -> tuple[float, float]:
        answer = seconds or self._settings.timeout_seconds
        # While a body is sent the first of the two counts.
        return (answer if patient else self._settings.connect_seconds), answer


def name_part(text: str) -> str:
    """Quote a container's or an image's name for a path."""
    return quote(text, safe="")


def demultiplexed(answer: requests.Response) -> Iterator[bytes]:
    """Yield the payload of stdout and stderr in the order in which Docker wrote it down."""
    for _, piece in labelled(answer):
        yield piece


def labelled(answer: requests.Response) -> Iterator[tuple[int, bytes]]:
    """Yield the same with the number of what it was written to: 1 is stdout, 2 is stderr."""
    while len(header := _exactly(answer, 8)) == 8:
        size = int.from_bytes(header[4:], "big")
        while size > 0 and (piece := answer.raw.read(min(size, 1 << 16))):
            size -= len(piece)
            yield header[0], piece


def _exactly(answer: requests.Response, count: int) -> bytes:
    content = b""
    while len(content) < count and (piece := answer.raw.read(count - len(content))):
        content += piece
    return content


def _check(answer: requests.Response) -> None:
    if answer.status_code < 400:
        return
    words = answer.text.strip()
    with suppress(ValueError, KeyError, TypeError):
        words = answer.json()["message"].strip()
    raise EngineSaidError(answer.status_code, words or f"HTTP status {answer.status_code}")


def _common_version(said: Mapping[str, Any]) -> str:
    newest = _number(said.get("ApiVersion", ""))
    oldest = _number(said.get("MinAPIVersion") or "1.0")
    chosen = min(newest, NEWEST)
    if chosen < max(oldest, OLDEST):
        spoken = f"{said.get('MinAPIVersion')} to {said.get('ApiVersion')}"
        raise NodeUnfitError(
            f"its engine speaks API {spoken}; stopgap needs Docker 20.10 (API 1.41) or newer"
        )
    return f"{chosen[0]}.{chosen[1]}"


def _number(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    try:
        return int(major), int(minor)
    except ValueError:
        raise NodeUnfitError(f"its engine gives its API version as {text!r}") from None
