"""``stopgap`` commands that run while the demo goes on, and end with it."""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager


class CommandError(Exception):
    """A command failed that must not."""


@contextmanager
def running(
    commands: Sequence[Sequence[str]], env: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[str], ...]]:
    """Start commands side by side; those that still run at the end are killed."""
    with ExitStack() as stack:
        children = []
        for argv in commands:
            child = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=dict(env),
            )
            stack.enter_context(child)
            # Undone first: Popen waits for the end on its way out.
            stack.callback(child.kill)
            children.append(child)
        yield tuple(children)


def finish(child: subprocess.Popen[str], *, seconds: float) -> None:
    """
    Wait for the end of a command.

    Raises:
        CommandError: it failed, or took too long.
    """
    words = " ".join(map(str, child.args if isinstance(child.args, list) else []))
    try:
        printed, complaint = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as exc:
        raise CommandError(f"{words} took more than {seconds:g} s") from exc
    if child.returncode:
        said = f"{complaint}{printed}".strip()
        raise CommandError(f"{words} exited with {child.returncode}: {said}")
