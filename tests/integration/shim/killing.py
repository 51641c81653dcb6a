"""SIGKILL to the shim at a moment of its work."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.integration.shim.kit import ShimNode
from tests.testbed import wait_until


def shims(node: ShimNode, verb: str, container: str) -> list[int]:
    """Find the shim at work on a call of the engine."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                program = str(node.install_dir / "stopgap-runc")
                if program in words and verb in words and container in words:
                    found.append(int(entry.name))
    return found


def kill_when(node: ShimNode, verb: str, container: str, moment: Callable[[], object]) -> bool:
    """Kill the shim at a moment of its work; tell whether it was still there."""
    pids = wait_until(lambda: shims(node, verb, container), 20, f"the shim's {verb}", every=0.001)
    wait_until(lambda: moment() or not shims(node, verb, container), 20, "it", every=0.0005)
    killed = False
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            killed = True
    return killed


def after(seconds: float) -> Callable[[Path], Callable[[], object]]:
    def moment(_: Path) -> Callable[[], object]:
        end = time.monotonic() + seconds
        return lambda: time.monotonic() > end

    return moment
