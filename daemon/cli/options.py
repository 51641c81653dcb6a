"""The options that many commands share, and the client they lead to."""

from pathlib import Path
from typing import Annotated

import typer

from daemon.api.client import Client

#: daemon.config has the same; loading it would cost every command 0.1 s.
DEFAULT_SOCKET = Path("/run/stopgap/stopgap.sock")

Socket = Annotated[
    Path,
    typer.Option("--socket", envvar="STOPGAP_SOCKET", help="The daemon's socket.", metavar="PATH"),
]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
Jobs = Annotated[list[int], typer.Argument(metavar="JOB...", min=1, help="Numbers of jobs.")]
Nodes = Annotated[
    list[str], typer.Argument(metavar="NODE...", help='Names or host lists such as "n[1-4]".')
]


def client(socket: Path) -> Client:
    """Return the daemon's client."""
    return Client(socket)


def expand(names: list[str]) -> list[str]:
    """Turn host lists into names, each once, in the order given."""
    found: list[str] = []
    for name in names:
        if "[" not in name:
            found.append(name)
            continue
        import hostlist  # noqa: PLC0415  only for those who write brackets

        try:
            found += hostlist.expand_hostlist(name)
        except hostlist.BadHostlist as exc:
            raise typer.BadParameter(f"{name!r} is not a host list: {exc}") from exc
    return list(dict.fromkeys(found))
