"""Captured PBS text in the form that stopgap asks for.

Most situations were captured in the default format alone.  The two formats hold the same
attributes in the same order; where both were captured a test compares them.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from tests.unit.captured import DATA, read

MASTER = DATA / "openpbs-23.06.06-master-cd7ab5e"
RELEASE = DATA / "openpbs-23.06.06"
_EPOCHS = ("last_state_change_time", "last_used_time")


def nodes_text(folder: Path) -> str:
    """Return what tells of each vnode where there are several on a host."""
    vnodes = folder / "pbsnodes_av.out"
    return read(vnodes if vnodes.exists() else folder / "pbsnodes_a.out")


def nodes_dsv(text: str) -> str:
    """Turn ``pbsnodes -a`` or ``-av`` into what the same with ``-F dsv`` prints."""
    return "".join(f"{'|'.join(_node(block))}\n" for block in _blocks(text))


def _node(lines: list[str]) -> Iterator[str]:
    yield f"Name={lines[0]}"
    for line in lines[1:]:
        key, _, value = line.strip().partition(" = ")
        if key in _EPOCHS:
            moment = datetime.strptime(value, "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC)
            value = f"{moment.timestamp():.0f}"
        yield f"{key}={value.replace(' ', '') if key == 'jobs' else value}"


def jobs_dsv(text: str) -> str:
    """Turn ``qstat -f`` into what the same with ``-F dsv`` prints."""
    unwrapped = text.replace("\n\t", "")
    return "".join(f"{'|'.join(_job(block))}\n" for block in _blocks(unwrapped))


def _job(lines: list[str]) -> Iterator[str]:
    yield lines[0]
    for line in lines[1:]:
        key, _, value = line.strip().partition(" = ")
        value = re.sub(r"\\(?!['\",])", r"\\\\", value).replace("|", r"\|")
        yield f"{key}={value}"


def _blocks(text: str) -> list[list[str]]:
    return [block.splitlines() for block in re.split(r"\n\n+", text) if block.strip()]
