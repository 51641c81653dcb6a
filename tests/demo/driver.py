"""Which nodes priority jobs claim next, so that every job has to move often enough.  Pure."""

from tests.demo.picture import ENDED, Picture

#: Every so many claims two nodes are wanted at once, and jobs have to wait for a gap.
_DOUBLE = 4


class EndedTooSoonError(Exception):
    """A job ended before it had been moved as often as was asked for."""


def short_of(picture: Picture, moves: int) -> tuple[int, ...]:
    """
    Return the jobs that have not been moved often enough yet.

    Raises:
        EndedTooSoonError: one of them has ended.
    """
    found = [job for job in picture.jobs if job.migrations < moves]
    for job in found:
        if job.state in ENDED:
            raise EndedTooSoonError(
                f"{job.name} is {job.state} after {job.migrations} moves, but {moves} are wanted: "
                f"{job.reason}"
            )
    return tuple(job.id for job in found)


def next_claims(
    picture: Picture,
    *,
    moves: int,
    claims: int,
    just_moved: frozenset[int],
    hasty: frozenset[int],
) -> tuple[str, ...]:
    """
    Return the nodes to claim now; none while something is still under way.

    ``hasty`` jobs end at a time that nobody knows: their moves come first, but with a
    rest in between.

    Raises:
        EndedTooSoonError: a job has ended before it was moved often enough.
    """
    short = set(short_of(picture, moves))
    if not picture.calm or not picture.free:
        return ()
    held = {node.name: set(node.jobs) for node in picture.nodes if set(node.jobs) & short}

    def urgency(name: str) -> tuple[bool, bool, int, str]:
        needy = held[name] & short
        return (bool(needy & just_moved), not needy & hasty, -len(needy), name)

    return tuple(sorted(held, key=urgency)[: 2 if claims % _DOUBLE == _DOUBLE - 1 else 1])
