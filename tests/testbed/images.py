"""Images without a registry, made of files of this machine and its package source."""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.testbed import archive, debian
from tests.testbed.paths import IMAGES_DIR

BUSYBOX = "stopgap/busybox:1"
PYTHON = "stopgap/python:1"

_PASSWD = b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"
_GROUP = b"root:x:0:\nnogroup:x:65534:\n"

#: NumPy with the BLAS that has threads of its own.
_PYTHON_PACKAGES = ("python3", "python3-numpy", "libopenblas0-pthread")

#: What no job needs; engines load the image many times.
_CHAFF = (
    "usr/share/doc",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/perl5",
    "usr/share/zoneinfo",
    "usr/lib/*/gconv",
    "usr/lib/*/perl-base",
    "usr/lib/*/lapack",
    "usr/lib/apt",
    "usr/lib/python3*/dist-packages/numpy/f2py",
    "usr/lib/python3*/dist-packages/numpy/*/tests",
    "usr/bin/perl*",
    "var/cache/*",
    "var/lib/apt/*",
    "var/lib/dpkg/*",
    "var/log/*",
    "dev/*",
)


_MAKING = "making-"


class ImageError(Exception):
    """An image could not be made."""


def ensure_all() -> list[Path]:
    """
    Return the archives of all images of the bed, making what is missing.

    Raises:
        ImageError: one could not be made.
    """
    return [
        _ensure("busybox", BUSYBOX, _busybox_layer, ["/bin/sh"]),
        _ensure("python", PYTHON, _python_layer, ["/usr/bin/python3"]),
    ]


def _ensure(name: str, tag: str, fill: Callable[[Path], None], command: list[str]) -> Path:
    target = IMAGES_DIR / f"{name}.tar"
    if target.exists():
        return target
    IMAGES_DIR.mkdir(parents=True, exist_ok=True)
    for abandoned in IMAGES_DIR.glob(f"{_MAKING}*"):
        shutil.rmtree(abandoned)
    with tempfile.TemporaryDirectory(dir=IMAGES_DIR, prefix=_MAKING) as folder:
        layer, fresh = Path(folder) / "layer.tar", Path(folder) / "image.tar"
        fill(layer)
        archive.write(fresh, layer, tag, command)
        fresh.rename(target)
    return target


def _busybox_layer(layer: Path) -> None:
    program = shutil.which("busybox")
    if not program:
        raise ImageError("no busybox here (Debian: apt-get install busybox-static)")
    applets = subprocess.run([program, "--list"], capture_output=True, text=True, check=True)
    with tarfile.open(layer, "w", format=tarfile.PAX_FORMAT) as sink:
        for folder in ("bin", "dev", "etc", "proc", "root", "run", "sys", "usr", "usr/bin", "var"):
            archive.add_folder(sink, folder)
        for folder in ("tmp", "var/tmp"):
            archive.add_folder(sink, folder, mode=0o1777)
        archive.add_file(sink, "bin/busybox", Path(program).read_bytes(), mode=0o755)
        for applet in sorted({*applets.stdout.split()} - {"busybox"}):
            archive.add_link(sink, f"bin/{applet}", "busybox")
        archive.add_file(sink, "etc/passwd", _PASSWD)
        archive.add_file(sink, "etc/group", _GROUP)


def _python_layer(layer: Path) -> None:
    root = layer.parent / "root"
    try:
        source, suite = debian.archive(), debian.codename()
    except debian.NoSourceError as exc:
        raise ImageError(f"{exc}: the image with Python and NumPy cannot be made") from exc
    print("making the image with Python and NumPy, about a minute", file=sys.stderr)
    # What debootstrap mounts ends with its mount namespace, even if it is killed.
    argv = ["unshare", "--mount", "--propagation=private", "debootstrap", "--variant=minbase"]
    argv += [f"--include={','.join(_PYTHON_PACKAGES)}", suite, str(root), source.uri]
    answer = subprocess.run(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
        check=False,
    )
    if answer.returncode:
        raise ImageError(f"debootstrap exited with {answer.returncode}: {answer.stdout[-1500:]}")
    for pattern in _CHAFF:
        for path in root.glob(pattern):
            _remove(path)
    with tarfile.open(layer, "w", format=tarfile.PAX_FORMAT) as sink:
        for path in sorted(root.iterdir()):
            sink.add(path, path.name)
    shutil.rmtree(root)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
