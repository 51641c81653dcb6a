"""Runs that nothing disturbs: the same programs in plain containers, outside stopgap."""

import itertools
import subprocess
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tests.demo.catalogue import Program
from tests.demo.workplace import Workplace
from tests.testbed import Bed

_KIND = "reference"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run of a program has left."""

    log: bytes
    folder: Path
    exit_code: int


class References:
    """The undisturbed runs, all on one engine beside stopgap's containers."""

    def __init__(self, bed: Bed, place: Workplace) -> None:
        self._bed = bed
        self._place = place
        self._node = bed.nodes[-1]

    def step_seconds(self, program: Program) -> float:
        """Return how long the fastest step of a program takes, one that prints a line for each."""
        name = "demo-measure"
        self._start(name, program, "measure")
        self._bed.run([*self._docker, "wait", name], seconds=600)
        log = self._logs(name, "--timestamps")
        self._docker_run("rm", "--volumes", name)
        # Docker writes nine decimals, of which Python reads six.
        times = [datetime.fromisoformat(f"{line[:26].decode()}+00:00") for line in log.splitlines()]
        return min((b - a).total_seconds() for a, b in itertools.pairwise(times))

    def start(self, program: Program) -> None:
        """Start a run of a program."""
        self._start(_name(program), program, _KIND)

    def collect(self, program: Program, *, seconds: float) -> Run:
        """Wait for the end of a run and return what it left; its container goes."""
        name = _name(program)
        code = self._bed.run([*self._docker, "wait", name], seconds=seconds).stdout
        log = self._logs(name)
        self._docker_run("rm", "--volumes", name)
        folder = self._place.folder(_KIND, program)
        return Run(log=log, folder=folder, exit_code=int(code))

    @property
    def _docker(self) -> list[str]:
        return ["docker", "--host", self._bed.engines[self._node]]

    def _docker_run(self, *argv: str) -> None:
        self._bed.run([*self._docker, *argv])

    def _start(self, name: str, program: Program, kind: str) -> None:
        options = [f"--volume={mount}" for mount in self._place.mounts(kind, program)]
        options += [f"--env={name}={value}" for name, value in program.env]
        options += [f"--cpus={program.cpus}", f"--memory={program.memory_mib}m"]
        options += ["--init", "--network=none", f"--name={name}"]
        self._docker_run("run", "--detach", *options, program.image, *program.argv)

    def _logs(self, name: str, *options: str) -> bytes:
        return subprocess.run(
            [*self._docker, "logs", *options, name],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._bed.env,
            timeout=60,
            check=True,
        ).stdout


def _name(program: Program) -> str:
    return f"demo-{program.name}"
