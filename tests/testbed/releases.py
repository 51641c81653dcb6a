"""Engines of other Debian releases: each runs in a root of its own, on the same kernel.

The root is unpacked once and kept.  An engine sees it, the bed at its usual place, and the private
CRIU; its mounts are nobody else's and end with it.
"""

import shutil
import tempfile
from pathlib import Path

from tests.testbed.layout import Layout
from tests.testbed.paths import CRIU_DIR, RELEASES_DIR
from tests.testbed.unpacking import unpack
from tests.testbed.waiting import alone

#: The engine, what the shim needs on a node, and what programs of the host are.
_PACKAGES = (
    "base-files",
    "coreutils",
    "dash",
    "docker.io",
    "grep",
    "gzip",
    "iproute2",
    "mount",
    "python3",
    "sed",
    "tar",
    "tini",
    "util-linux",
)

#: Arguments: the root, then pairs of a folder and where it is seen, then ``--`` and the command.
_ENTER = """
    root=$1; shift
    mount --bind "$root" "$root"
    for name in proc sys dev; do mount --rbind "/$name" "$root/$name"; done
    for name in run tmp; do mount -t tmpfs -o mode=755 none "$root/$name"; done
    while [ "$1" != -- ]; do
        mkdir -p "$root$1"
        mount --bind "$1" "$root$1"
        shift
    done
    shift
    # Not only chroot: CRIU wants every root to be that of its mount namespace.
    cd "$root"
    mkdir run/old
    pivot_root . run/old
    umount --lazy /run/old
    exec "$@"
"""


def ensure(suite: str) -> Path:
    """
    Return the root of a release, unpacking it first if need be.

    Raises:
        UnpackingError: its packages could not be had.
    """
    with alone(RELEASES_DIR):
        target = RELEASES_DIR / suite
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=RELEASES_DIR, prefix="making-") as folder:
                fresh = unpack(suite, _PACKAGES, Path(folder))
                shutil.rmtree(fresh / "usr/share/doc", ignore_errors=True)
                fresh.rename(target)
        return target


def inside(suite: str, bed: Layout) -> list[str]:
    """Return what a command has to be preceded by to run in a release's root."""
    seen = [str(bed.root), str(CRIU_DIR)]
    private = ["unshare", "--mount", "--propagation=private"]
    return [*private, "sh", "-ec", _ENTER, "enter", str(RELEASES_DIR / suite), *seen, "--"]
