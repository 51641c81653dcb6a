"""A folder with programs that say what a test wants, and write down how they were called."""

from pathlib import Path


class Scripts:
    """The programs of a batch system."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.log.touch()

    def say(self, program: str, script: str) -> None:
        path = self.folder / program
        path.write_text(f'#!/bin/sh\necho "{program} $*" >> {self.log}\n{script}\n')
        path.chmod(0o755)

    def calls(self) -> list[str]:
        return self.log.read_text().splitlines()
