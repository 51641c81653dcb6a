"""What this machine lacks for a bed."""

import os
import shutil
from pathlib import Path

_PACKAGES = Path(__file__).parent / "packages"


def missing() -> list[str]:
    """Return why a bed cannot run here, one sentence each; nothing if it can."""
    if os.geteuid() != 0:
        return ["the bed starts Docker engines and must be run by root"]
    return [
        f"{needed} is not there (Debian: apt-get install {packages[-1]})"
        for needed, *packages in _needs()
        if not _is_there(needed)
    ]


def _needs() -> list[list[str]]:
    lines = _PACKAGES.read_text().splitlines()
    return [line.split() for line in lines if line.strip() and not line.startswith("#")]


def _is_there(needed: str) -> bool:
    if needed.startswith("/"):
        return Path(needed).exists()
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin:/sbin:/bin"
    return shutil.which(needed, path=path) is not None
