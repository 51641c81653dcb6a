"""Docker engines beside the system's: one for each node, with nothing in common."""

import json
import os
import re
import subprocess
from pathlib import Path

from tests.testbed import releases
from tests.testbed.layout import Layout

#: From this release on an engine keeps its identity in its own data; before, all engines
#: of a machine share one unless told otherwise, and afterwards the key is refused.
_OWN_IDENTITY = 23


class EngineError(Exception):
    """An engine of the bed did not do what it was asked."""


def configure(bed: Layout, node: str) -> None:
    """Write the engine's configuration, which ``stopgap node setup`` edits later."""
    home = bed.node(node)
    home.mkdir(parents=True)
    settings: dict[str, object] = {
        "experimental": True,
        "live-restore": False,
        "storage-driver": "overlay2",
    }
    if _major(bed, node) < _OWN_IDENTITY:
        settings["deprecated-key-path"] = f"{home}/key.json"
    (home / "daemon.json").write_text(json.dumps(settings, indent=2) + "\n")


def dockerd_argv(bed: Layout, node: str) -> list[str]:
    """Return the command of one node's dockerd."""
    home = bed.node(node)
    return [
        *_inside(bed, node),
        "dockerd",
        f"--config-file={home}/daemon.json",
        f"--host={bed.engine(node)}",
        f"--data-root={home}/docker",
        f"--exec-root={home}/exec",
        f"--pidfile={home}/docker.pid",
        f"--cgroup-parent={bed.cgroups[1]}/{node}",
        "--exec-opt=native.cgroupdriver=cgroupfs",
        "--bridge=none",
        "--iptables=false",
        "--ip-forward=false",
        # CRIU cannot restore with the symbolic link that Debian ships as docker-init.
        "--init-path=/usr/bin/tini-static",
    ]


def answers(bed: Layout, node: str) -> bool:
    """Return whether a node's engine answers."""
    if not (bed.node(node) / "docker.sock").is_socket():
        return False
    return _docker(bed, node, "version").returncode == 0


def load(bed: Layout, node: str, image: Path) -> None:
    """
    Load an image from a file into a node's engine.

    Raises:
        EngineError: the engine refused it.
    """
    answer = _docker(bed, node, "load", "--quiet", "--input", str(image))
    if answer.returncode:
        raise EngineError(f"{node}: docker load {image.name}: {answer.stderr.strip()}")


def _docker(bed: Layout, node: str, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["docker", "--host", bed.engine(node), *argv],
        capture_output=True,
        text=True,
        env=os.environ | {"LC_ALL": "C"},
        timeout=120,
        check=False,
    )


def _inside(bed: Layout, node: str) -> list[str]:
    suite = bed.releases.get(node)
    return releases.inside(suite, bed) if suite else []


def _major(bed: Layout, node: str) -> int:
    argv = [*_inside(bed, node), "dockerd", "--version"]
    answer = subprocess.run(argv, capture_output=True, text=True, check=True)
    found = re.search(r"version (\d+)", answer.stdout)
    return int(found[1]) if found else _OWN_IDENTITY
