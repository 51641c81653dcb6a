"""The programs of a bed: started, watched, killed, started again."""

import signal
import socket
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.testbed import engines, slurm
from tests.testbed.layout import MARK, Layout
from tests.testbed.processes import Process, identify, recorded, start
from tests.testbed.waiting import TookTooLongError, wait_until

_SECONDS = 60


class PartError(Exception):
    """A program of the bed ended, or does not answer."""


class Parts:
    """The programs of one bed, whoever has started them."""

    def __init__(self, bed: Layout, daemon_env: Mapping[str, str] | None = None) -> None:
        self._bed = bed
        self._daemon_env = daemon_env or {}
        #: Children of this program only; their exit status must be taken.
        self._children: list[tuple[str, subprocess.Popen[bytes]]] = []

    def launch(self, component: str, node: str = "") -> None:
        """Start a component; it is recorded when this returns."""
        argv: dict[str, Callable[[], list[str]]] = {
            "munged": lambda: slurm.munged_argv(self._bed),
            "slurmctld": lambda: slurm.slurmctld_argv(self._bed),
            "slurmd": lambda: slurm.slurmd_argv(self._bed, node),
            "dockerd": lambda: engines.dockerd_argv(self._bed, node),
            "stopgapd": lambda: ["stopgap", "serve", "--config", str(self._bed.config)],
        }
        name = name_of(component, node)
        log = self._bed.logs / f"{name}.out"
        env = self._environment(component)
        child = start(name, argv[component](), registry=self._bed.registry, env=env, log=log)
        self._children.append((name, child))

        def known() -> bool:
            ended = child.poll() is not None
            return ended or any(p.pid == child.pid for p in recorded(self._bed.registry))

        wait_until(known, _SECONDS, f"{name} to be recorded", every=0.001)

    def wait(self, component: str, node: str = "") -> None:
        """
        Wait until a component answers.

        Raises:
            PartError: it ended instead, or took too long.
        """
        name = name_of(component, node)
        child = next((c for n, c in reversed(self._children) if n == name), None)

        def settled() -> bool:
            ended = child is not None and child.poll() is not None
            return ended or self.answers(component, node)

        try:
            wait_until(settled, _SECONDS, f"{name} to answer", every=0.05)
        except TookTooLongError as exc:
            raise PartError(f"{exc}{self._last_words(name)}") from exc
        if child is not None and child.returncode is not None:
            raise PartError(f"{name} ended with {child.returncode}{self._last_words(name)}")

    def answers(self, component: str, node: str = "") -> bool:
        """Return whether a component does its work."""
        questions: dict[str, Callable[[], bool]] = {
            "munged": lambda: _accepts(self._bed.munge / "socket"),
            "slurmctld": lambda: slurm.answers(self._bed),
            "slurmd": lambda: node in slurm.ready_nodes(self._bed),
            "dockerd": lambda: engines.answers(self._bed, node),
            "stopgapd": lambda: _accepts(self._bed.socket),
        }
        return questions[component]()

    def process(self, component: str, node: str = "") -> Process | None:
        """Return the living process of a component; nothing if it does not run."""
        if component == "containerd":
            found = self._containerd(node)
            return found if found and found.alive() else None
        name = name_of(component, node)
        living = [p for p in recorded(self._bed.registry) if p.name == name and p.alive()]
        return living[-1] if living else None

    def kill(self, component: str, node: str = "", *, number: int = signal.SIGKILL) -> None:
        """
        Signal a component and wait until it has gone; dockerd takes its containerd along.

        Raises:
            TookTooLongError: it did not go.
        """
        found = self.process(component, node)
        if found is None:
            return
        below = self.process("containerd", node) if component == "dockerd" else None
        found.kill(number)
        for victim in (found, below):
            if victim is not None:
                self._bury(victim)

    def _bury(self, victim: Process) -> None:
        """dockerd takes a pid file for stale, and starts containerd, only after this."""

        def reaped() -> bool:
            for _, child in self._children:
                if child.pid == victim.pid:
                    child.poll()
            return victim.reaped()

        wait_until(reaped, _SECONDS, f"the end of process {victim.pid}")

    def restart(self, component: str, node: str = "") -> None:
        """
        Start a component again, killing it first if it runs, and wait until it answers.

        Raises:
            PartError: it ended instead, or took too long.
        """
        self.kill(component, node)
        self.launch(component, node)
        self.wait(component, node)

    def release(self) -> None:
        """Take the exit status of every child; all of them must be dead."""
        for _, child in self._children:
            child.wait()
        self._children.clear()

    def _environment(self, component: str) -> dict[str, str]:
        env = {
            "PATH": self._bed.node_path,
            "LC_ALL": "C.UTF-8",
            "HOME": str(self._bed.root),
            # containerd leaves its stubs of checkpoints there when it is killed.
            "TMPDIR": str(self._bed.tmp),
        }
        if component == "stopgapd":
            env |= self._daemon_env
        return env | {"SLURM_CONF": str(self._bed.slurm_conf), MARK: self._bed.instance}

    def _containerd(self, node: str) -> Process | None:
        pidfile = self._bed.node(node) / "exec/containerd/containerd.pid"
        try:
            return identify(int(pidfile.read_text()))
        except (FileNotFoundError, ValueError):
            return None

    def _last_words(self, name: str) -> str:
        found = [path for path in self._bed.logs.glob(f"{name}.*") if path.stat().st_size]
        tails = [path.read_text(errors="replace")[-1500:] for path in found]
        return "".join(f"\n{tail.strip()}" for tail in tails)


def name_of(component: str, node: str = "") -> str:
    """Return what a component is called in the registry and among the logs."""
    return f"{component}.{node}" if node else component


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
