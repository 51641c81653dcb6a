"""Runs that nothing disturbs: the same programs in plain containers, outside stopgap."""

import re
import subprocess
from dataclasses import dataclass
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

    def core_seconds(self, program: Program) -> float:
        """Return the time of cores that a run of a program takes, whoever else wants them."""
        counted = ("sh", "-c", '"$@" >/dev/null && times', "sh", *program.argv)
        options = self._options(program, "measure")
        argv = [*self._docker, "run", "--rm", *options, program.image, *counted]
        said = self._bed.run(argv, seconds=600).stdout
        # The first line is of the shell itself, the second of its children.
        parts = re.findall(r"(\d+)m([\d.]+)s", said.splitlines()[1])
        return sum(60 * int(minutes) + float(seconds) for minutes, seconds in parts)

    def start(self, program: Program) -> None:
        """Start a run of a program."""
        options = [f"--name={_name(program)}", *self._options(program, _KIND)]
        self._docker_run("run", "--detach", *options, program.image, *program.argv)

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

    def _options(self, program: Program, kind: str) -> list[str]:
        options = [f"--volume={mount}" for mount in self._place.mounts(kind, program)]
        options += [f"--env={name}={value}" for name, value in program.env]
        options += [f"--cpus={program.cpus}", f"--memory={program.memory_mib}m"]
        return [*options, "--init", "--network=none"]

    def _logs(self, name: str) -> bytes:
        return subprocess.run(
            [*self._docker, "logs", name],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._bed.env,
            timeout=60,
            check=True,
        ).stdout


def _name(program: Program) -> str:
    return f"demo-{program.name}"
