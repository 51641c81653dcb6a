"""Attributes as the commands of PBS print them, byte for byte, in UTC."""

import re
import time
from collections.abc import Iterator

from adapters.mock_pbs.attributes import Attributes
from adapters.mock_pbs.nouns import Job

#: Columns after which ``qstat -f`` goes on in the next line.
_LIMIT = 78
_HEAD = (
    "Job id            Name             User              Time Use S Queue\n"
    "----------------  ---------------- ----------------  -------- - -----\n"
)


def moment(seconds: float) -> str:
    """Return a moment as ctime(3) does."""
    return time.asctime(time.gmtime(seconds))


def nodes(listed: list[tuple[str, Attributes]]) -> str:
    """Print what ``pbsnodes -a`` does."""
    return "".join(f"{name}\n{''.join(_node_lines(found))}\n" for name, found in listed)


def _node_lines(attributes: Attributes) -> Iterator[str]:
    for key, value in attributes:
        yield f"     {key} = {_plain(value)}\n"


def nodes_dsv(listed: list[tuple[str, Attributes]]) -> str:
    """Print what it does with ``-F dsv``: nothing is escaped, and jobs lose their blanks."""
    lines = []
    for name, attributes in listed:
        fields = [f"Name={name}"]
        for key, value in attributes:
            text = f"{value:.0f}" if isinstance(value, float) else value
            fields.append(f"{key}={text.replace(' ', '') if key == 'jobs' else text}")
        lines.append("|".join(fields) + "\n")
    return "".join(lines)


def jobs(listed: list[tuple[str, Attributes]]) -> str:
    """Print what ``qstat -f`` does."""
    blocks = []
    for name, attributes in listed:
        lines = [f"    {key} = " + _wrapped(key, _plain(value)) for key, value in attributes]
        blocks.append("\n".join([f"Job Id: {name}", *lines]) + "\n\n")
    return "".join(blocks)


def jobs_dsv(listed: list[tuple[str, Attributes]], start: str = "Job Id") -> str:
    """Print what it does with ``-F dsv``."""
    lines = []
    for name, attributes in listed:
        fields = [f"{key}={_escaped(_plain(value))}" for key, value in attributes]
        lines.append("|".join([f"{start}: {name}", *fields]) + "\n")
    return "".join(lines)


def table(listed: list[tuple[str, Job]]) -> str:
    """Print what ``qstat`` does."""
    rows = []
    for name, job in listed:
        used = job.attributes.get("resources_used.cput", "0")
        rows.append(
            f"{name:<16.16}  {job.name:<16.16} {job.owner:<16.16}  {used:>8} {job.state} "
            f"{job.queue:<16}\n"
        )
    return _HEAD + "".join(rows) if rows else ""


def reservations(listed: list[tuple[str, Attributes]]) -> str:
    """Print what ``pbs_rstat -F`` does."""
    blocks = []
    for name, attributes in listed:
        lines = [f"Resv ID: {name}\n"]
        for key, value in attributes:
            text = value
            if isinstance(value, float):
                text = time.strftime("%a %b %d %H:%M:%S %Y", time.gmtime(value))
            lines.append(f"{key} = {text}\n")
        blocks.append("".join(lines) + "\n")
    return "".join(blocks)


def _plain(value: str | float) -> str:
    return moment(value) if isinstance(value, float) else value


def _escaped(value: str) -> str:
    value = re.sub(r"\\(?!['\",])", r"\\\\", value).replace("|", r"\|")
    return value.replace("\n", r"\n")


def _wrapped(key: str, value: str) -> str:
    """Break a value between its commas, or anywhere when a part is too long."""
    printed: list[str] = []
    column = len(key) + 7
    for index, part in enumerate(value.split(",")):
        if index:
            printed.append(",")
        if len(part) + column < _LIMIT:
            printed.append(part)
            column += len(part)
            continue
        if index:
            printed.append("\n\t")
            column = 9
        for char in part:
            printed.append(char)
            column += 1
            if column > _LIMIT:
                printed.append("\n\t")
                column = 8
    return "".join(printed)
