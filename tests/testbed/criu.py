"""A CRIU that works on today's kernels, in a private folder of the checkout.

Debian's stable releases lag behind the kernel, so the program and its libraries come
from the packages of the ``unstable`` suite, unpacked beside the system and started
through their own loader.
"""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.testbed import debian
from tests.testbed.paths import CRIU_BIN, CRIU_DIR

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
        fresh = Path(folder) / "root"
        for package in _download(Path(folder)):
            _run("dpkg-deb", "-x", str(package), str(fresh))
        shutil.rmtree(root, ignore_errors=True)
        fresh.rename(root)
    (loader,) = {path.resolve() for path in root.rglob("ld-linux-*.so.*")}
    (libc,) = {path.parent for path in root.rglob("libc.so.6")}
    (program,) = root.rglob("sbin/criu")
    return f'exec {loader} --library-path {libc} {program} "$@"'


def _download(work: Path) -> list[Path]:
    parts, state, cache = work / "sources", work / "state", work / "cache"
    for folder in (parts, state / "lists/partial", cache / "archives/partial"):
        folder.mkdir(parents=True)
    # apt fetches as a user of its own, who must get in.
    work.chmod(0o755)
    (work / "status").touch()
    try:
        (parts / "unstable.sources").write_text(debian.archive().stanza("unstable"))
    except debian.NoSourceError as exc:
        raise CriuError(f"{exc}: put CRIU 4.2 or newer on PATH") from exc
    options = {
        "Dir::State": state,
        "Dir::State::status": work / "status",
        "Dir::Cache": cache,
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": parts,
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "APT::Sandbox::User": "root",
    }
    apt = ["apt-get", "-qq", *(f"-o{key}={value}" for key, value in options.items())]
    _run(*apt, "update")
    _run(*apt, "-y", "--download-only", "--no-install-recommends", "install", "criu")
    return sorted((cache / "archives").glob("*.deb"))


def _run(*argv: str) -> None:
    answer = subprocess.run(
        argv, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}, check=False
    )
    if answer.returncode:
        words = (answer.stderr or answer.stdout).strip()
        raise CriuError(f"{argv[0]} exited with {answer.returncode}: {words}")


def _write(wrapper: Path, line: str) -> None:
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    fresh = wrapper.with_suffix(".new")
    fresh.write_text(f"#!/bin/sh\n{line}\n")
    fresh.chmod(0o755)
    fresh.rename(wrapper)
