"""What a container printed, complete and in the order in which Docker wrote it down."""

from collections.abc import Iterator
from datetime import datetime

from migration.base import EngineUnreachableError
from migration.docker import Docker, EngineSaidError, demultiplexed

#: A job may be silent for long; each silence is followed by a look whether it still runs.
_SHORTEST_SILENCE, _LONGEST_SILENCE = 30.0, 600.0


def printed(
    docker: Docker, container: str, *, skip: int = 0, until: datetime | None = None
) -> Iterator[bytes]:
    """
    Yield what is there now, without its first bytes; nothing when there is no container.

    ``until`` is a moment of the node's clock, at which the job stood still.

    Raises:
        EngineSaidError: there is no container, and so nobody knows what it had printed by then.
    """
    limit = {} if until is None else {"until": f"{until.timestamp():.6f}"}
    try:
        yield from _skipping(_read(docker, container, silence=None, follow=0, **limit), skip)
    except EngineSaidError as exc:
        if exc.status != 404 or until is not None:
            raise


def followed(docker: Docker, container: str) -> Iterator[bytes]:
    """Yield what is there and what comes until the container has ended."""
    sent, silence = 0, _SHORTEST_SILENCE
    while True:
        try:
            for piece in _skipping(_read(docker, container, silence=silence, follow=1), sent):
                yield piece
                sent += len(piece)
                silence = _SHORTEST_SILENCE
        except EngineUnreachableError:
            # Either it was silent, or the engine is away: then the next question says so.
            silence = min(2 * silence, _LONGEST_SILENCE)
        except EngineSaidError as exc:
            if exc.status != 404:
                raise
            return
        if not runs(docker, container):
            yield from printed(docker, container, skip=sent)
            return


def runs(docker: Docker, container: str) -> bool:
    """Tell whether the container has not ended."""
    try:
        state = docker.get(f"/containers/{container}/json")["State"]
    except EngineSaidError as exc:
        if exc.status == 404:
            return False
        raise
    return bool(state["Running"])


def _read(
    docker: Docker, container: str, *, silence: float | None, follow: int, **more: str
) -> Iterator[bytes]:
    where = f"/containers/{container}/logs"
    wanted = {"stdout": 1, "stderr": 1, "follow": follow} | more
    with docker.stream(where, silence_seconds=silence, **wanted) as answer:
        yield from demultiplexed(answer)


def _skipping(pieces: Iterator[bytes], skip: int) -> Iterator[bytes]:
    for piece in pieces:
        if skip < len(piece):
            yield piece[skip:]
        skip = max(0, skip - len(piece))
