"""One bed: started, steered and ended from Python."""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tests.testbed import cgroups, config, criu, engines, images, layout, slurm, teardown
from tests.testbed.layout import MARK, Layout
from tests.testbed.paths import CRIU_BIN, OWNED
from tests.testbed.processes import Process, identify, recorded, start
from tests.testbed.waiting import TookTooLongError, wait_until

_START_SECONDS = 60


class BedError(Exception):
    """The bed could not be started, or cannot do what it was asked."""


class Bed:
    """A running set of real parts, and the handles to disturb it."""

    def __init__(self, known: Layout) -> None:
        self.layout = known
        #: Children of this program only; their exit status must be taken.
        self._children: list[tuple[str, subprocess.Popen[bytes]]] = []

    @classmethod
    @contextmanager
    def start(cls, *, nodes: int = 4, daemon: bool = False) -> Iterator[Self]:
        """
        Start a bed that ends with the block, or with this program.

        Raises:
            BedError: a part did not start.
        """
        sweep()
        bed = cls.create(nodes=nodes, owned=True)
        try:
            bed.up()
            if daemon:
                bed.start_daemon()
            yield bed
        finally:
            bed.down()

    @classmethod
    def create(cls, *, nodes: int = 4, owned: bool = False, root: Path | None = None) -> Self:
        """Reserve a root for a bed and write down that it exists; nothing is started."""
        if root is None:
            root = Path(tempfile.mkdtemp(prefix="stopgap-bed-"))
        root.mkdir(parents=True, exist_ok=True)
        # Slurm and munge refuse folders below one that others cannot pass.
        root.chmod(0o755)
        known = layout.fresh(root.resolve(), nodes=nodes, owned=owned)
        known.save()
        if owned:
            OWNED.mkdir(parents=True, exist_ok=True)
            (OWNED / known.instance).write_text(str(known.root))
        return cls(known)

    @classmethod
    def attach(cls, root: Path) -> Self:
        """
        Return the bed under a root, whoever has started it.

        Raises:
            FileNotFoundError: there is none.
        """
        return cls(layout.load(root))

    @property
    def root(self) -> Path:
        return self.layout.root

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.layout.nodes

    @property
    def engines(self) -> dict[str, str]:
        """The address of each node's engine, as ``docker --host`` takes it."""
        return {node: self.layout.engine(node) for node in self.nodes}

    @property
    def config(self) -> Path:
        return self.layout.config

    @property
    def data(self) -> Path:
        return self.layout.data

    @property
    def checkpoints(self) -> Path:
        return self.layout.checkpoints

    @property
    def exports(self) -> dict[str, str]:
        """The variables that make ``sinfo``, ``sbatch`` and ``stopgap`` speak to this bed."""
        programs = [str(Path(sys.executable).parent), str(self.layout.bin), str(CRIU_BIN)]
        path = os.environ.get("PATH", "/usr/bin:/bin").split(":")
        needed = [folder for folder in ("/usr/sbin", "/sbin") if folder not in path]
        rest = [folder for folder in path + needed if folder not in programs]
        return {
            "PATH": ":".join(programs + rest),
            "SLURM_CONF": str(self.layout.slurm_conf),
            "STOPGAP_SOCKET": str(self.layout.socket),
            "STOPGAP_CONFIG": str(self.config),
            "BED_ROOT": str(self.root),
            "BED_ENGINES": " ".join(self.engines.values()),
            "BED_NODES": " ".join(self.nodes),
            "BED_DATA": str(self.data),
            "BED_CHECKPOINTS": str(self.checkpoints),
        }

    @property
    def env(self) -> dict[str, str]:
        """The environment of this program with the bed's variables."""
        return {**os.environ, **self.exports}

    def run(
        self, argv: list[str], *, check: bool = True, seconds: float = 60, text: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """
        Run a program in the bed's environment and return what it said.

        Raises:
            BedError: it failed, and that was not expected.
        """
        answer = subprocess.run(
            argv,
            input=text,
            capture_output=True,
            text=True,
            env=self.env,
            cwd=self.data,
            timeout=seconds,
            check=False,
        )
        if check and answer.returncode:
            words = f"{answer.stdout}{answer.stderr}".strip()
            raise BedError(f"{shlex.join(argv)} exited with {answer.returncode}: {words}")
        return answer

    def docker(self, node: str, *argv: str, check: bool = True) -> str:
        """
        Run a docker command on a node's engine and return its output.

        Raises:
            BedError: it failed, and that was not expected.
        """
        return self.run(["docker", "--host", self.engines[node], *argv], check=check).stdout.strip()

    def up(self) -> None:
        """
        Start every part but the daemon.

        Raises:
            BedError: a part did not start.
        """
        criu.ensure()
        archives = images.ensure_all()
        self._lay_out()
        for node in self.nodes:
            self._launch("dockerd", node)
        self._launch("munged")
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            furnished = [pool.submit(self._furnish, node, archives) for node in self.nodes]
            self._wait("munged", self._answering("munged", ""))
            self._launch("slurmctld")
            for node in self.nodes:
                self._launch("slurmd", node)
            self._wait("slurmctld", lambda: slurm.idle_nodes(self.layout) >= set(self.nodes))
            for done in furnished:
                done.result()

    def down(self) -> None:
        """
        End everything of the bed and remove its root.

        Raises:
            LeftoversError: something survived.
        """
        teardown.tear_down(self.layout)
        for _, child in self._children:
            child.wait()
        self._children.clear()
        (OWNED / self.layout.instance).unlink(missing_ok=True)

    def start_daemon(self) -> None:
        """
        Start ``stopgap serve`` and wait for its socket.

        Raises:
            BedError: it ended instead.
        """
        self._launch("stopgapd")
        self._wait("stopgapd", self._daemon_answers)

    def stop_daemon(self) -> None:
        """Ask the daemon to stop, and wait until it has."""
        self.kill("stopgapd", number=signal.SIGTERM)

    def setup_nodes(self) -> None:
        """
        Have the daemon set up every node.

        Raises:
            BedError: a node could not be set up.
        """
        self.run(["stopgap", "node", "setup", *self.nodes], seconds=180)

    def process(self, component: str, node: str = "") -> Process | None:
        """Return the living process of a component, such as ``dockerd`` of ``n1``."""
        if component == "containerd":
            found = self._containerd(node)
            return found if found and found.alive() else None
        name = _name(component, node)
        living = [p for p in recorded(self.layout.registry) if p.name == name and p.alive()]
        return living[-1] if living else None

    def kill(self, component: str, node: str = "", *, number: int = signal.SIGKILL) -> None:
        """Signal a component and wait until it has gone; dockerd takes its containerd along."""
        found = self.process(component, node)
        if found is None:
            return
        below = self.process("containerd", node) if component == "dockerd" else None
        found.kill(number)
        wait_until(lambda: not found.alive(), 30, f"the end of {_name(component, node)}")
        if below is not None:
            wait_until(lambda: not below.alive(), 30, f"the end of containerd on {node}")
        for _, child in self._children:
            child.poll()

    def restart(self, component: str, node: str = "") -> None:
        """
        Start a component again, killing it first if it runs, and wait until it answers.

        Raises:
            BedError: it ended instead.
        """
        self.kill(component, node)
        self._launch(component, node)
        self._wait(component, self._answering(component, node), node)

    def cgroup_processes(self, node: str) -> dict[str, list[int]]:
        """Return the living processes of each segment of a node, by ``<job>.<epoch>``."""
        top = f"{self.layout.segment_cgroup}/{node}"
        found: dict[str, set[int]] = {}
        for place, members in cgroups.members(top).items():
            segment = place.removeprefix(top).strip("/").split("/")[0]
            found.setdefault(segment, set()).update(process.pid for process in members)
        return {segment: sorted(pids) for segment, pids in found.items()}

    def _lay_out(self) -> None:
        known = self.layout
        for folder in (known.logs, known.bin):
            folder.mkdir()
        for folder in (known.checkpoints, known.state):
            folder.mkdir(mode=0o700)
        known.data.mkdir()
        known.data.chmod(0o1777)
        slurm.configure(known)
        for node in self.nodes:
            engines.configure(known, node)
        config.write(known)

    def _furnish(self, node: str, archives: list[Path]) -> None:
        self._wait("dockerd", self._answering("dockerd", node), node)
        for archive in archives:
            engines.load(self.layout, node, archive)

    def _answering(self, component: str, node: str) -> Callable[[], object]:
        conditions: Mapping[str, Callable[[], object]] = {
            "munged": (self.layout.munge / "socket").is_socket,
            "slurmctld": lambda: slurm.answers(self.layout),
            "slurmd": lambda: node in slurm.idle_nodes(self.layout),
            "dockerd": lambda: engines.answers(self.layout, node),
            "stopgapd": self._daemon_answers,
        }
        return conditions[component]

    def _daemon_answers(self) -> bool:
        return self.run(["stopgap", "status", "--json"], check=False).returncode == 0

    def _containerd(self, node: str) -> Process | None:
        pidfile = self.layout.node(node) / "exec/containerd/containerd.pid"
        try:
            return identify(int(pidfile.read_text()))
        except (FileNotFoundError, ValueError):
            return None

    def _launch(self, component: str, node: str = "") -> None:
        known = self.layout
        argv = {
            "munged": lambda: slurm.munged_argv(known),
            "slurmctld": lambda: slurm.slurmctld_argv(known),
            "slurmd": lambda: slurm.slurmd_argv(known, node),
            "dockerd": lambda: engines.dockerd_argv(known, node),
            "stopgapd": lambda: ["stopgap", "serve", "--config", str(known.config)],
        }[component]()
        name = _name(component, node)
        env = {"PATH": known.node_path, "LC_ALL": "C.UTF-8", "HOME": str(known.root)}
        if component == "stopgapd":
            env |= self.exports
        env |= {"SLURM_CONF": str(known.slurm_conf), MARK: known.instance}
        log = known.logs / f"{name}.out"
        child = start(name, argv, registry=known.registry, env=env, log=log)
        self._children.append((name, child))

    def _wait(self, component: str, condition: Callable[[], object], node: str = "") -> None:
        """Wait for a component that must not end meanwhile."""
        name = _name(component, node)
        child = next((c for n, c in reversed(self._children) if n == name), None)

        def settled() -> object:
            return (child is not None and child.poll() is not None) or condition()

        try:
            wait_until(settled, _START_SECONDS, f"{name} to answer", every=0.05)
        except TookTooLongError as exc:
            raise BedError(f"{exc}{self._last_words(name)}") from exc
        if child is not None and child.poll() is not None:
            raise BedError(f"{name} ended with {child.returncode}{self._last_words(name)}")

    def _last_words(self, name: str) -> str:
        found = [path for path in self.layout.logs.glob(f"{name}.*") if path.stat().st_size]
        tails = [path.read_text(errors="replace")[-1500:] for path in found]
        return "".join(f"\n{tail.strip()}" for tail in tails)


def sweep() -> None:
    """End the beds of programs that have gone."""
    for note in OWNED.glob("*") if OWNED.is_dir() else ():
        try:
            bed = Bed.attach(Path(note.read_text()))
        except FileNotFoundError:
            note.unlink(missing_ok=True)
            continue
        if not bed.layout.owner_alive():
            bed.down()


def _name(component: str, node: str) -> str:
    return f"{component}.{node}" if node else component
