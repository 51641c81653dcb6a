"""Images without a registry: archives that ``docker load`` takes, made on this machine."""

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

from tests.testbed.paths import IMAGES_DIR

#: A moment for everything in an image, so that the same files give the same image.
_MOMENT = 1577836800
_CREATED = "2020-01-01T00:00:00Z"

_PASSWD = b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"


class ImageError(Exception):
    """An image could not be made."""


def busybox() -> Path:
    """
    Return the archive of ``stopgap/busybox:1``: a static busybox and nothing else.

    Raises:
        ImageError: there is no static busybox here.
    """
    return _ensure("busybox", "stopgap/busybox:1", _busybox_layer, {"Cmd": ["/bin/sh"]})


def _busybox_layer(sink: tarfile.TarFile) -> None:
    program = shutil.which("busybox")
    if not program:
        raise ImageError("no busybox here: install the package busybox-static")
    applets = subprocess.run([program, "--list"], capture_output=True, text=True, check=True)
    for folder in ("bin", "dev", "etc", "proc", "root", "run", "sys", "usr", "usr/bin", "var"):
        _add_folder(sink, folder)
    for folder in ("tmp", "var/tmp"):
        _add_folder(sink, folder, mode=0o1777)
    _add_file(sink, "bin/busybox", Path(program).read_bytes(), mode=0o755)
    for applet in applets.stdout.split():
        if applet != "busybox":
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname, link.mtime = tarfile.SYMTYPE, "busybox", _MOMENT
            sink.addfile(link)
    _add_file(sink, "etc/passwd", _PASSWD)
    _add_file(sink, "etc/group", b"root:x:0:\nnogroup:x:65534:\n")


def _add_folder(sink: tarfile.TarFile, name: str, mode: int = 0o755) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, mode, _MOMENT
    sink.addfile(entry)


def _add_file(sink: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(content), mode, _MOMENT
    sink.addfile(entry, io.BytesIO(content))


def _ensure(
    name: str,
    tag: str,
    fill: Callable[[tarfile.TarFile], None],
    settings: dict[str, object],
) -> Path:
    target = IMAGES_DIR / f"{name}.tar"
    if target.exists():
        return target
    IMAGES_DIR.mkdir(parents=True, exist_ok=True)
    layer = IMAGES_DIR / f"{name}.layer"
    with tarfile.open(layer, "w", format=tarfile.PAX_FORMAT) as sink:
        fill(sink)
    fresh = IMAGES_DIR / f"{name}.new"
    _write_archive(fresh, layer, tag, settings)
    layer.unlink()
    fresh.rename(target)
    return target


def _write_archive(target: Path, layer: Path, tag: str, settings: dict[str, object]) -> None:
    """Write what ``docker save`` would: a configuration, one layer and a manifest."""
    with layer.open("rb") as source:
        digest = hashlib.file_digest(source, "sha256").hexdigest()
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    described = {
        "architecture": "amd64",
        "os": "linux",
        "created": _CREATED,
        "config": {"Env": [path, "LC_ALL=C.UTF-8"], **settings},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created": _CREATED, "created_by": "stopgap's bed"}],
    }
    config = json.dumps(described).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    packed = f"{digest}/layer.tar"
    manifest = [{"Config": config_name, "RepoTags": [tag], "Layers": [packed]}]
    with tarfile.open(target, "w") as sink:
        _add_file(sink, config_name, config)
        _add_folder(sink, digest)
        sink.add(layer, packed)
        _add_file(sink, "manifest.json", json.dumps(manifest).encode())


def ensure_all() -> list[Path]:
    """
    Return the archives of all images of the bed, making what is missing.

    Raises:
        ImageError: one could not be made.
    """
    return [busybox()]
