"""A CRIU that works on today's kernels, in a private folder of the checkout.

Debian's stable releases lag behind the kernel, so the program and its libraries come
from the packages of the ``unstable`` suite, unpacked beside the system and started
through their own loader.
"""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.testbed.paths import CRIU_BIN, CRIU_DIR
from tests.testbed.unpacking import UnpackingError, unpack

#: The first release that dumps TCP sockets on kernels from 6.16.
_WANTED = (4, 2)


class CriuError(Exception):
    """No CRIU that is new enough could be had."""


def version(program: str | Path) -> tuple[int, ...]:
    """Return the version of a CRIU; nothing if it cannot be run."""
    try:
        answer = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except OSError:
        return ()
    found = re.search(r"Version: ([\d.]+)", answer.stdout)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def ensure() -> Path:
    """
    Return the private CRIU, putting it there first if need be.

    Raises:
        CriuError: the packages could not be had.
    """
    wrapper = CRIU_BIN / "criu"
    if version(wrapper) >= _WANTED:
        return wrapper
    own = shutil.which("criu")
    CRIU_DIR.mkdir(parents=True, exist_ok=True)
    if own and version(own) >= _WANTED:
        _write(wrapper, f'exec {own} "$@"')
    else:
        _write(wrapper, _unpacked())
    if version(wrapper) < _WANTED:
        raise CriuError(f"{wrapper} does not run; remove {CRIU_DIR} and try again")
    return wrapper


def _unpacked() -> str:
    root = CRIU_DIR / "root"
    with tempfile.TemporaryDirectory(dir=CRIU_DIR) as folder:
        try:
            fresh = unpack("unstable", ["criu"], Path(folder))
        except UnpackingError as exc:
            raise CriuError(f"{exc}: put CRIU 4.2 or newer on PATH") from exc
        shutil.rmtree(root, ignore_errors=True)
        fresh.rename(root)
    (loader,) = {path.resolve() for path in root.rglob("ld-linux-*.so.*")}
    (libc,) = {path.parent for path in root.rglob("libc.so.6")}
    (program,) = root.rglob("sbin/criu")
    return f'exec {loader} --library-path {libc} {program} "$@"'


def _write(wrapper: Path, line: str) -> None:
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    fresh = wrapper.with_suffix(".new")
    fresh.write_text(f"#!/bin/sh\n{line}\n")
    fresh.chmod(0o755)
    fresh.rename(wrapper)
