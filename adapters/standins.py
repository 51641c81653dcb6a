"""Programs that stand in for those of a batch system, and the file through which they share it."""

import fcntl
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

_ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Said:
    """What a program leaves behind."""

    out: str = ""
    err: str = ""
    code: int = 0

    def leave(self) -> NoReturn:
        """Print it, and end this process with it."""
        sys.stdout.buffer.write(self.out.encode("utf-8", "surrogateescape"))
        sys.stderr.buffer.write(self.err.encode("utf-8", "surrogateescape"))
        sys.stdout.flush()
        sys.exit(self.code)


class Folder:
    """A folder with programs, and a document that one of them at a time reads and changes."""

    def __init__(self, folder: Path) -> None:
        self.bin_dir = folder / "bin"
        self._state = folder / "state.json"
        self._lock = folder / "lock"

    def _place(self, module: str, names: Iterable[str], document: dict[str, Any]) -> None:
        """Place the document, and programs that call ``main`` of a module with their name."""
        self.bin_dir.mkdir(parents=True, exist_ok=True)
        self._lock.touch()
        self._write(document)
        for name in names:
            path = self.bin_dir / name
            path.write_text(
                f"#!{sys.executable}\n"
                "import sys\n"
                f"sys.path.insert(0, {str(_ROOT)!r})\n"
                f"from {module} import main\n"
                f"main({name!r}, {str(self._state.parent)!r})\n"
            )
            path.chmod(0o755)

    @contextmanager
    def _opened(self) -> Iterator[dict[str, Any]]:
        """Read the document; nobody else does until the block ends."""
        with self._lock.open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield json.loads(self._state.read_text())

    def _write(self, document: dict[str, Any]) -> None:
        # Appears whole: whoever waits for the lock was killed, or reads it next.
        new = self._state.with_suffix(".new")
        new.write_text(json.dumps(document))
        new.replace(self._state)
