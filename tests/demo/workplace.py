"""Where the programs lie and where they leave their files: one folder each, on the shared data."""

import shutil
import subprocess
from pathlib import Path

from tests.demo.catalogue import OUT, PROGRAMS, Program

_SOURCES = Path(__file__).parent / "programs"


class Workplace:
    """The folders of all runs."""

    def __init__(self, data: Path) -> None:
        self.programs = data / "programs"
        self._runs = data / "runs"

    def furnish(self) -> None:
        """
        Place the programs, compiling what is not ready to run.

        Raises:
            CalledProcessError: the compiler failed.
        """
        shutil.copytree(_SOURCES, self.programs, ignore=shutil.ignore_patterns("__pycache__"))
        source, program = self.programs / "threads.c", self.programs / "threads"
        # Static: it must run in an image whose C library is another one.
        options = ["-O2", "-Wall", "-Werror", "-pthread", "-static"]
        subprocess.run(["gcc", *options, "-o", program, source], check=True)

    def folder(self, kind: str, program: Program) -> Path:
        """Return the folder of one run of a program, making it."""
        folder = self._runs / kind / program.name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def mounts(self, kind: str, program: Program) -> tuple[str, str]:
        """Return what a container of the run mounts, as Docker and stopgap both write it."""
        return f"{self.programs}:{PROGRAMS}:ro", f"{self.folder(kind, program)}:{OUT}"
