"""How people watch: a picture that changes on a terminal, lines of events elsewhere."""

import sys
import time
from collections import deque
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tests.demo.picture import JobLook, NodeLook, Picture

#: Of events; fewer where the terminal has no room for them.
_MOST_LINES, _FEWEST_LINES = 12, 3
_STYLES = {
    "running": "green",
    "completed": "bold green",
    "evicting": "yellow",
    "parked": "yellow",
    "resuming": "cyan",
    "starting": "cyan",
    "failed": "bold red",
    "held": "bold red",
    "unreachable": "bold red",
}


class View(Protocol):
    """Where the demo tells what happens."""

    def say(self, text: str) -> None:
        """Tell of one event."""

    def show(self, picture: Picture, speed: str) -> None:
        """Show how things stand."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None: ...


def view() -> View:
    """Return the view that fits what stderr is."""
    return LiveView() if sys.stderr.isatty() else PlainView()


class PlainView:
    """A line for each event."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:6.1f} s  {text}", file=sys.stderr, flush=True)

    def show(self, picture: Picture, speed: str) -> None:
        """Events say it all."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        return


class LiveView:
    """Nodes, jobs and the last events, drawn over themselves."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._events: deque[str] = deque(maxlen=_MOST_LINES)
        self._picture: Picture | None = None
        self._speed = ""
        self._console = Console(stderr=True, highlight=False)
        self._live = Live(
            console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )

    def say(self, text: str) -> None:
        self._events.append(f"{time.monotonic() - self._began:6.1f} s  {text}")
        self._draw()

    def show(self, picture: Picture, speed: str) -> None:
        self._picture, self._speed = picture, speed
        self._draw()

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, exc, tb)

    def _draw(self) -> None:
        parts: list[Table | Text] = []
        taken = 4
        if self._picture is not None:
            names = {job.id: job.name for job in self._picture.jobs}
            parts += [_nodes(self._picture.nodes, names), Text(), _jobs(self._picture.jobs), Text()]
            taken += 4 + len(self._picture.nodes) + len(self._picture.jobs)
        room = max(_FEWEST_LINES, self._console.height - taken)
        parts.append(Text("\n".join(list(self._events)[-room:])))
        if self._speed:
            parts.append(Text(f"\n{self._speed}", style="bold"))
        self._live.update(Group(*parts), refresh=True)


def _nodes(nodes: tuple[NodeLook, ...], names: dict[int, str]) -> Table:
    table = _table("NODE", "BATCH SYSTEM", "JOBS", "CLAIMS")
    for node in nodes:
        jobs = " ".join(names.get(job, str(job)) for job in node.jobs)
        style = "yellow" if node.claims else "green" if node.jobs else ""
        table.add_row(node.name, node.words, jobs, " ".join(sorted(set(node.claims))), style=style)
    return table


def _jobs(jobs: tuple[JobLook, ...]) -> Table:
    table = _table("JOB", "STATE", "NODE", "MOVES", "RAN", "LOST")
    for job in jobs:
        table.add_row(
            job.name,
            Text(job.state, style=_STYLES.get(job.state, "")),
            job.node or "-",
            str(job.migrations),
            f"{job.run_seconds:.0f} s",
            f"{job.lost_seconds:.0f} s",
        )
    return table


def _table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in heads:
        table.add_column(head, min_width=9)
    return table
