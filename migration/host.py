"""A node's own programs and files, reached through its engine alone.

Programs run in a short-lived container of an empty image with the host's folders mounted
and the host's root at /host; files pass through a container that is never started.
"""

import io
import json
import secrets
import tarfile
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from migration.base import EngineError
from migration.docker import Docker, EngineSaidError, demultiplexed, labelled, name_part

IMAGE = "stopgap/host"
IMAGE_TAG = "1"
LABEL_HELPER = "stopgap.helper"
#: Helpers that pass a stream on: they live for as long as it takes.
LABEL_STREAM = "stopgap.stream"
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: What the programs of the shim need: chroot, to signal any user's process, to read any file.
CAPABILITIES = ("SYS_CHROOT", "KILL", "DAC_OVERRIDE", "SYS_PTRACE")
#: chroot itself comes from here; it runs before /host is its root.
_HOST_FOLDERS = ("/usr", "/bin", "/lib", "/lib64")
#: No helper is given more time, clocks that differ included.
_LONGEST_LIFE = timedelta(minutes=10)
_LONGEST_STREAM = timedelta(days=1)
_PIECE_BYTES = 1 << 18
#: Of what a program complains about.
_MOST_WORDS = 65536
#: Two zero blocks are a tar archive with nothing in it.
_EMPTY_TAR = bytes(1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a program of the host said and how it ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFile:
    """A file of the host's, owned by root."""

    content: bytes
    mode: int


class Host:
    """One node, seen from inside."""

    def __init__(self, docker: Docker, instance: str, path: str = "") -> None:
        self._docker = docker
        self._instance = instance
        self._path = path or DEFAULT_PATH

    def run(
        self,
        argv: Sequence[str],
        *,
        seconds: float,
        capabilities: Sequence[str] = CAPABILITIES,
    ) -> Ran:
        """
        Run a program of the host's as root and return what it said.

        Raises:
            EngineUnreachableError: it did not end in time, or nobody answered.
        """
        body = self._body(["chroot", "/host", *argv], capabilities)
        with self._container(body) as helper:
            self._docker.call("POST", f"/containers/{helper}/start")
            ended = self._docker.call("POST", f"/containers/{helper}/wait", seconds=seconds)
            out, err = (self._said(helper, stream) for stream in ("stdout", "stderr"))
            return Ran(code=int(ended.json()["StatusCode"]), out=out, err=err)

    def call(self, argv: Sequence[str], *, seconds: float) -> Any:
        """
        Run a program that prints one JSON document, and return it.

        Raises:
            HostProgramError: it failed, or printed something else.
            EngineUnreachableError: it did not end in time, or nobody answered.
        """
        ran = self.run(argv, seconds=seconds)
        words = (ran.err or ran.out).strip()
        if ran.code:
            raise HostProgramError(f"{' '.join(argv)}: exit code {ran.code}: {words}", ran.code)
        try:
            return json.loads(ran.out)
        except ValueError as exc:
            raise HostProgramError(
                f"{' '.join(argv)}: unexpected output: {words[:200]}", 0
            ) from exc

    @contextmanager
    def pour(self, argv: Sequence[str], *, silence_seconds: float) -> Iterator[Iterator[bytes]]:
        """
        Run a program of the host's and yield what it prints while it prints it.

        It is ended with the block; nothing of its output is kept anywhere.

        Raises:
            HostProgramError: in the iteration, at its end: the program failed.
            EngineUnreachableError: it said nothing for that long, or nobody answered.
        """
        body = self._body(["chroot", "/host", *argv], CAPABILITIES, label=LABEL_STREAM)
        body["HostConfig"]["LogConfig"] = {"Type": "none"}
        with (
            self._container(body) as helper,
            # First the stream, then the container: an engine waits for whoever still listens.
            closing(self._poured(helper, argv, silence_seconds)) as pieces,
        ):
            yield pieces

    def _poured(
        self, helper: str, argv: Sequence[str], seconds: float
    ) -> Generator[bytes, None, None]:
        words = b""
        where = f"/containers/{helper}"
        with self._docker.attach(helper, silence_seconds=seconds) as answer:
            self._docker.call("POST", f"{where}/start")
            held = bytearray()
            for number, piece in labelled(answer):
                if number == 1:
                    held += piece
                else:
                    words = (words + piece)[-_MOST_WORDS:]
                # Engines pass on 32 KiB at most, and each piece costs all the way.
                if len(held) >= _PIECE_BYTES:
                    yield bytes(held)
                    held.clear()
            yield bytes(held)
        code = int(self._docker.call("POST", f"{where}/wait").json()["StatusCode"])
        if code:
            said = words.decode(errors="replace").strip()
            raise HostProgramError(f"{' '.join(argv)}: exit code {code}: {said}", code)

    @contextmanager
    def files(self, *, long: bool = False) -> Iterator["HostFiles"]:
        """Open the node's files for reading and writing; for ``long``, not only for minutes."""
        label = LABEL_STREAM if long else LABEL_HELPER
        with self._container(self._body(["true"], (), label=label)) as helper:
            yield HostFiles(self._docker, helper)

    def sweep(self, now: datetime) -> None:
        """Remove helpers that a killed daemon has left; those of other threads are younger."""
        for label, life in ((LABEL_HELPER, _LONGEST_LIFE), (LABEL_STREAM, _LONGEST_STREAM)):
            wanted = json.dumps({"label": [f"{label}={self._instance}"]})
            before = (now - life).timestamp()
            for found in self._docker.get("/containers/json", all=1, filters=wanted):
                if found["Created"] < before:
                    self._remove(found["Id"])

    @contextmanager
    def _container(self, body: Mapping[str, Any]) -> Iterator[str]:
        name = f"stopgap-helper-{secrets.token_hex(6)}"
        try:
            self._create(name, body)
            yield name
        finally:
            self._remove(name)

    def _create(self, name: str, body: Mapping[str, Any]) -> None:
        params = {"name": name}
        try:
            self._docker.call("POST", "/containers/create", params=params, body=body)
        except EngineSaidError as exc:
            if exc.status != 404:
                raise
            source = {"fromSrc": "-", "repo": IMAGE, "tag": IMAGE_TAG}
            self._docker.call("POST", "/images/create", params=source, content=_EMPTY_TAR)
            self._docker.call("POST", "/containers/create", params=params, body=body)

    def _remove(self, name: str) -> None:
        with suppress(EngineError):
            where = f"/containers/{name_part(name)}"
            self._docker.call("DELETE", where, params={"force": 1, "v": 1})

    def _said(self, helper: str, stream: str) -> str:
        asked = {stream: 1}
        where = f"/containers/{helper}/logs"
        with self._docker.stream(where, silence_seconds=None, **asked) as answer:
            return b"".join(demultiplexed(answer)).decode(errors="replace")

    def _body(
        self, command: list[str], capabilities: Sequence[str], *, label: str = LABEL_HELPER
    ) -> dict[str, Any]:
        mounts = [
            {"Type": "bind", "Source": folder, "Target": folder, "ReadOnly": True}
            for folder in _HOST_FOLDERS
        ]
        mounts.append({"Type": "bind", "Source": "/", "Target": "/host", "ReadOnly": False})
        return {
            "Image": f"{IMAGE}:{IMAGE_TAG}",
            "Cmd": command,
            "Entrypoint": [],
            "User": "0:0",
            "Env": [f"PATH={self._path}"],
            "Labels": {label: self._instance},
            "NetworkDisabled": True,
            "Healthcheck": {"Test": ["NONE"]},
            "HostConfig": {
                "NetworkMode": "none",
                "PidMode": "host",
                "UsernsMode": "host",
                "CapDrop": ["ALL"],
                "CapAdd": list(capabilities),
                # The default profiles forbid signals and writes below /sys/fs/cgroup.
                "SecurityOpt": ["apparmor=unconfined", "seccomp=unconfined", "label=disable"],
                "LogConfig": {"Type": "json-file"},
                "Mounts": mounts,
            },
        }


class HostProgramError(EngineError):
    """A program of the node's failed; its words are the message."""

    def __init__(self, words: str, code: int) -> None:
        super().__init__(words)
        self.code = code


class HostFiles:
    """The node's files, through a container that is never started."""

    def __init__(self, docker: Docker, helper: str) -> None:
        self._docker = docker
        self._archive = f"/containers/{helper}/archive"

    def read(self, path: str) -> HostFile | None:
        """Return a regular file, or None where there is none."""
        try:
            where = {"path": f"/host{path}"}
            answer = self._docker.call("GET", self._archive, params=where)
        except EngineSaidError as exc:
            if exc.status == 404:
                return None
            raise
        with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
            member = archive.next()
            content = archive.extractfile(member) if member and member.isfile() else None
            if member is None or content is None:
                return None
            return HostFile(content=content.read(), mode=member.mode & 0o7777)

    def unpack(self, folder: str, pieces: Iterable[bytes], *, silence_seconds: float) -> None:
        """
        Unpack a tar archive, packed or not, into a folder that exists, while it comes.

        Raises:
            EngineUnreachableError: nobody took it.
            EngineSaidError: the folder cannot be written, or it is no whole archive.
        """
        where = {"path": f"/host{folder}"}
        self._docker.upload(
            "PUT", self._archive, pieces, params=where, silence_seconds=silence_seconds
        )

    def write(self, folder: str, files: Mapping[str, HostFile]) -> None:
        """
        Put files into a folder that exists; what has the same name is overwritten in place.

        Raises:
            EngineUnreachableError: nobody answered.
            EngineSaidError: the folder does not exist, or cannot be written.
        """
        where = {"path": f"/host{folder}"}
        self._docker.call("PUT", self._archive, params=where, content=archive_of(files))


def archive_of(files: Mapping[str, HostFile]) -> bytes:
    """Return a tar archive of files of root's."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for name, file in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(file.content), file.mode
            archive.addfile(member, io.BytesIO(file.content))
    return sink.getvalue()
