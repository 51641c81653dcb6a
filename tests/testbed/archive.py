"""The archive that ``docker load`` takes, written without an engine."""

import hashlib
import io
import json
import subprocess
import tarfile
from pathlib import Path

#: A moment for everything in an image, so that the same files give the same image.
MOMENT = 1577836800
_CREATED = "2020-01-01T00:00:00Z"

_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def write(target: Path, layer: Path, tag: str, command: list[str]) -> None:
    """Write what ``docker save`` would: a configuration, one layer and a manifest."""
    with layer.open("rb") as source:
        digest = hashlib.file_digest(source, "sha256").hexdigest()
    described = {
        "architecture": _architecture(),
        "os": "linux",
        "created": _CREATED,
        "config": {"Env": [_PATH, "LC_ALL=C.UTF-8"], "Cmd": command},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created": _CREATED, "created_by": "stopgap's bed"}],
    }
    config = json.dumps(described).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    packed = f"{digest}/layer.tar"
    manifest = [{"Config": config_name, "RepoTags": [tag], "Layers": [packed]}]
    with tarfile.open(target, "w") as sink:
        add_file(sink, config_name, config)
        add_folder(sink, digest)
        sink.add(layer, packed)
        add_file(sink, "manifest.json", json.dumps(manifest).encode())


def add_folder(sink: tarfile.TarFile, name: str, mode: int = 0o755) -> None:
    """Add an empty directory of root's."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, mode, MOMENT
    sink.addfile(entry)


def add_file(sink: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    """Add a file of root's."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(content), mode, MOMENT
    sink.addfile(entry, io.BytesIO(content))


def add_link(sink: tarfile.TarFile, name: str, target: str) -> None:
    """Add a symbolic link."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.mtime = tarfile.SYMTYPE, target, MOMENT
    sink.addfile(entry)


def _architecture() -> str:
    answer = subprocess.run(
        ["dpkg", "--print-architecture"], capture_output=True, text=True, check=True
    )
    return answer.stdout.strip()
