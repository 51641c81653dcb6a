"""What batch systems printed, as the adapters are given it."""

from pathlib import Path

DATA = Path(__file__).parents[1] / "data"


def read(path: Path) -> str:
    return decoded(path.read_bytes())


def decoded(raw: bytes) -> str:
    """Decode as the runner of programs does: bytes that are no text are kept."""
    return raw.decode("utf-8", "surrogateescape")
