"""Programs of this machine that make and run the virtual one."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.testbed.paths import CACHE

VM_DIR = CACHE / "vm"

#: A program and Debian's package of it.
_NEEDED = {
    "qemu-system-x86_64": "qemu-system-x86",
    "debootstrap": "debootstrap",
    "mkfs.ext4": "e2fsprogs",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "busybox": "busybox-static",
    "unshare": "util-linux",
    "setpriv": "util-linux",
}

_ENV = {**os.environ, "LC_ALL": "C", "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}


class VmError(Exception):
    """The virtual machine could not be made, or does not do what it should."""


def ensure() -> None:
    """
    Install what is missing.

    Raises:
        VmError: this is not root on a Debian.
    """
    wanted = sorted({package for name, package in _NEEDED.items() if not find(name)})
    if os.geteuid() != 0:
        raise VmError("the virtual machine's disk is made by root: run this as root")
    if not wanted:
        return
    if not find("apt-get"):
        raise VmError(f"the virtual machine needs, by Debian's names: {' '.join(wanted)}")
    run("apt-get", "-qq", "update")
    extra = {"DEBIAN_FRONTEND": "noninteractive"}
    run("apt-get", "-qq", "-y", "--no-install-recommends", "install", *wanted, env=extra)


def find(name: str) -> str | None:
    """Return the path of a program, also of those that only root's PATH has."""
    return shutil.which(name, path=_ENV["PATH"])


def run(
    *argv: str | Path, env: Mapping[str, str] | None = None, stdin: bytes = b"", cwd: Path = VM_DIR
) -> bytes:
    """
    Run a program and return what it printed.

    Raises:
        VmError: it failed; with its last words.
    """
    cwd.mkdir(parents=True, exist_ok=True)
    answer = subprocess.run(
        argv, input=stdin, capture_output=True, env={**_ENV, **(env or {})}, cwd=cwd, check=False
    )
    if answer.returncode:
        words = (answer.stderr + answer.stdout)[-2000:].decode(errors="replace").strip()
        raise VmError(f"{Path(argv[0]).name} exited with {answer.returncode}: {words}")
    return answer.stdout
