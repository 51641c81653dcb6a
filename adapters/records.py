"""Records in the text of a batch system, a line each.  Pure."""

from collections.abc import Iterator
from contextlib import contextmanager

from adapters.base import UnparsableError


def lines(command: str, text: str) -> Iterator[tuple[int, str]]:
    """
    Return the lines of an answer with their numbers.

    Raises:
        UnparsableError: the last one has no end.
    """
    if text and not text.endswith("\n"):
        raise UnparsableError(command, "the last line is cut off", sample=text[-200:])
    # Not splitlines: it also splits where a free text has a form feed or the like.
    return enumerate(text.split("\n")[:-1], start=1)


@contextmanager
def reading(command: str, number: int, line: str) -> Iterator[None]:
    """
    Read a line in the block, in which values are missed and refused.

    Raises:
        UnparsableError: instead of a KeyError or a ValueError, which name a field or a value.
    """
    try:
        yield
    except KeyError as exc:
        raise UnparsableError(command, f"line {number} has no {exc.args[0]}", sample=line) from exc
    except ValueError as exc:
        raise UnparsableError(command, f"line {number} has {exc}", sample=line) from exc
