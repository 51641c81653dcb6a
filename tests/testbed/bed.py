"""One bed: started, used, disturbed and ended from Python."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tests.testbed import (
    cgroups,
    config,
    criu,
    engines,
    images,
    layout,
    releases,
    slurm,
    stock,
    teardown,
)
from tests.testbed.layout import SHARED_CGROUPS, Layout
from tests.testbed.parts import Parts
from tests.testbed.paths import CRIU_BIN, CURRENT, OWNED
from tests.testbed.processes import Process


class BedError(Exception):
    """A program that was run on the bed failed."""


class Bed:
    """A running set of real parts, and the handles to disturb it."""

    def __init__(self, known: Layout) -> None:
        self.layout = known
        self._parts = Parts(known, self.exports)

    @classmethod
    @contextmanager
    def start(
        cls,
        *,
        nodes: int = 4,
        daemon: bool = False,
        settings: Mapping[str, Mapping[str, object]] | None = None,
        releases: Mapping[str, str] | None = None,
    ) -> Iterator[Self]:
        """
        Start a bed that ends with the block, or with this program.

        ``releases`` names nodes whose engine is to be that of another Debian suite.

        Raises:
            PartError: a part did not start.
        """
        sweep()
        bed = cls(layout.reserve(nodes=nodes, releases=releases))
        try:
            bed.up()
            bed.configure(settings or {})
            if daemon:
                bed.start_daemon()
                bed.setup_nodes()
            yield bed
        finally:
            bed.down()
            forget(layout.note_of(bed.layout))

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
            PartError: a part did not start.
        """
        criu.ensure()
        goods = stock.ensure()
        for suite in set(self.layout.releases.values()):
            releases.ensure(suite)
        self._lay_out()
        self._parts.launch("munged")
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            furnished = [pool.submit(self._start_engine, node, goods) for node in self.nodes]
            self._parts.wait("munged")
            self._parts.launch("slurmctld")
            for node in self.nodes:
                self._parts.launch("slurmd", node)
            for node in self.nodes:
                self._parts.wait("slurmd", node)
            for done in furnished:
                done.result()

    def down(self) -> None:
        """
        End everything of the bed and remove its root.

        Raises:
            LeftoversError: something survived.
        """
        teardown.tear_down(self.layout)
        self._parts.release()

    @property
    def whole(self) -> bool:
        """Whether every part but the daemon runs."""
        once = [self.process("munged"), self.process("slurmctld")]
        each = [self.process(part, node) for part in ("slurmd", "dockerd") for node in self.nodes]
        return all(once + each)

    def configure(self, settings: Mapping[str, Mapping[str, object]]) -> None:
        """Write the daemon's configuration, with some keys of some tables changed."""
        config.write(self.layout, settings)

    def start_daemon(self) -> None:
        """
        Start ``stopgap serve`` and wait for its socket.

        Raises:
            PartError: it ended instead.
        """
        self._parts.launch("stopgapd")
        self._parts.wait("stopgapd")

    def stop_daemon(self) -> None:
        """Ask the daemon to stop, and wait until it has."""
        self._parts.kill("stopgapd", number=signal.SIGTERM)

    def setup_nodes(self) -> None:
        """
        Have the daemon set up every node.

        Raises:
            BedError: a node could not be set up.
        """
        self.run(["stopgap", "node", "setup", *self.nodes], seconds=180)

    def process(self, component: str, node: str = "") -> Process | None:
        """Return the living process of ``munged``, ``slurmctld``, ``stopgapd``, or of a node's
        ``slurmd``, ``dockerd`` or ``containerd``; nothing if it does not run."""
        return self._parts.process(component, node)

    def kill(self, component: str, node: str = "", *, number: int = signal.SIGKILL) -> None:
        """Signal a component and wait until it has gone; dockerd takes its containerd along."""
        self._parts.kill(component, node, number=number)

    def restart(self, component: str, node: str = "") -> None:
        """
        Start a component again, killing it first if it runs, and wait until it answers.

        Raises:
            PartError: it ended instead, or took too long.
        """
        self._parts.restart(component, node)

    def cgroup_processes(self, node: str) -> dict[str, list[int]]:
        """Return the living processes of each segment of a node, by ``<job>.<epoch>``."""
        top = f"{self.layout.cgroups[0]}/{node}"
        found: dict[str, set[int]] = {}
        for place, members in cgroups.members(top).items():
            segment = place.removeprefix(top).strip("/").split("/")[0]
            found.setdefault(segment, set()).update(process.pid for process in members)
        return {segment: sorted(pids) for segment, pids in found.items()}

    def _lay_out(self) -> None:
        known = self.layout
        for folder in (known.logs, known.bin, known.tmp):
            folder.mkdir()
        for folder in (known.checkpoints, known.state):
            folder.mkdir(mode=0o700)
        known.data.mkdir()
        known.data.chmod(0o1777)
        slurm.configure(known)
        for node in self.nodes:
            engines.configure(known, node)
        config.write(known)

    def _start_engine(self, node: str, goods: Path) -> None:
        foreign = node in self.layout.releases
        if not foreign:
            stock.furnish(self.layout, node, goods)
        self._parts.launch("dockerd", node)
        self._parts.wait("dockerd", node)
        for archive in images.ensure_all() if foreign else ():
            # The stock is that of the machine's own engine.
            engines.load(self.layout, node, archive)


def forget(note: Path) -> None:
    """Take away the note of a bed that has ended, and what no bed uses any more."""
    with layout.notes_locked():
        note.unlink(missing_ok=True)
        _drop_shared_cgroups()


def sweep() -> None:
    """End the beds of programs that have gone."""
    with layout.notes_locked():
        for note in OWNED.iterdir():
            known = layout.load(note)
            if known is not None and known.orphaned:
                teardown.tear_down(known)
            elif known is not None:
                continue
            layout.clear(note)
        _drop_shared_cgroups()


def _drop_shared_cgroups() -> None:
    """While a bed is noted, an engine of it may be about to make a cgroup in them."""
    if not CURRENT.exists() and not any(OWNED.iterdir()):
        for shared in SHARED_CGROUPS:
            cgroups.remove_if_empty(shared)
