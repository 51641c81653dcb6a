"""What PBS's words for the state of a vnode mean to us.

``state`` is a list of words (pbs_node_attributes(7B); ``ND_*`` in PBS's
src/include/pbs_internal.h).  Whatever is not in this table is not known, and not used.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from daemon.core.types import ClaimSource, NodeState


@dataclass(frozen=True, slots=True)
class Word:
    """What one word says."""

    state: NodeState
    #: Who wants the node because of it, and how to put that to people.
    source: ClaimSource | None = None
    said: str = ""


_BUSY = Word(NodeState.BUSY)
_CLOSED = Word(NodeState.UNAVAILABLE)
_UNKNOWN = Word(NodeState.UNKNOWN)

WORDS: Mapping[str, Word] = MappingProxyType(
    {
        # Takes more jobs; whether it has some is another question.
        "free": Word(NodeState.IDLE),
        "job-busy": _BUSY,
        "job-exclusive": _BUSY,
        "job-sharing": _BUSY,
        # Set by the node itself, by its load: a job of ours may be all that runs there.
        "busy": Word(NodeState.UNAVAILABLE, ClaimSource.DRAINING, "too much load for its MoM"),
        "down": _CLOSED,
        "initializing": _CLOSED,
        "maintenance": Word(NodeState.UNAVAILABLE, ClaimSource.RESERVED, "maintenance"),
        "offline": Word(NodeState.UNAVAILABLE, ClaimSource.DRAINING, "offline"),
        "offline_by_mom": Word(NodeState.UNAVAILABLE, ClaimSource.DRAINING, "offline by its MoM"),
        "provisioning": Word(NodeState.UNAVAILABLE, ClaimSource.ALLOCATED, "provisioned for a job"),
        "resv-exclusive": Word(NodeState.UNAVAILABLE, ClaimSource.RESERVED, "reserved"),
        "sleep": _CLOSED,
        "stale": _CLOSED,
        # A node that its server has not heard of yet.
        "state-unknown": _UNKNOWN,
        "unresolvable": _CLOSED,
        "wait-provisioning": Word(
            NodeState.UNAVAILABLE, ClaimSource.ALLOCATED, "about to be provisioned for a job"
        ),
    }
)

#: Jobs in these states hold no node (qstat(1B), JOB STATES).  Every other letter, known
#: or not, holds the vnodes that are listed with it: a suspended job keeps its memory.
HOLDING_NOTHING = frozenset("BFHMQTWX")
#: Jobs that the scheduler may have planned: an array that has begun has more to start.
WAITING = frozenset("BQ")


def split(state: str) -> tuple[str, ...]:
    """Take a list such as ``down,job-busy`` apart."""
    return tuple(word.strip().casefold() for word in state.split(","))


def judge(states: Iterable[str], *, held: bool) -> NodeState:
    """
    Return what the states of all vnodes of a host mean together.

    Args:
        held: priority jobs hold something of the host, whatever the words say.
    """
    found = {WORDS.get(word, _UNKNOWN).state for state in states for word in split(state)}
    for state in (NodeState.UNKNOWN, NodeState.UNAVAILABLE, NodeState.BUSY):
        if state in found:
            return state
    if not found:
        return NodeState.UNKNOWN
    return NodeState.BUSY if held else NodeState.IDLE


def wanted(states: Iterable[str]) -> Mapping[ClaimSource, str]:
    """Return who wants a host according to its words, and how to put that to people."""
    found: dict[ClaimSource, list[str]] = {}
    for state in states:
        for word in split(state):
            known = WORDS.get(word, _UNKNOWN)
            if known.source is not None and known.said not in found.setdefault(known.source, []):
                found[known.source].append(known.said)
    return {source: ", ".join(said) for source, said in found.items()}
