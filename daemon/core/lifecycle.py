"""The job's life as a table: which event leads from which state to which.

Nothing else in the project compares states to find out what comes next.  The
table is drawn in docs/architecture.md.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from daemon.core.types import PLACED, TERMINAL, Job, JobState

S = JobState


class Event(StrEnum):
    """What can happen to a job.  Stored; values never change their meaning."""

    START = "start"
    RESUME = "resume"
    #: Its first instruction on the node has run.
    PLACED = "placed"
    EVICT = "evict"
    SAVED = "saved"
    #: A checkpoint is committed, and the job goes on.
    KEPT = "kept"
    #: It could not be saved, and goes on.
    NOT_KEPT = "not_kept"
    #: The claim went away before anything was saved: it goes on where it is.
    THAWED = "thawed"
    #: It waits for a resume from its last generation.
    PARK = "park"
    #: It waits for a start from the beginning.
    REQUEUE = "requeue"
    HOLD = "hold"
    SILENT = "silent"
    ANSWERED = "answered"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


E = Event


class IllegalTransitionError(Exception):
    """An event came in a state in which it must not: a fault of stopgap's own."""

    def __init__(self, state: JobState, event: Event) -> None:
        super().__init__(f"event {event.value} must not happen in state {state.value}")
        self.state = state
        self.event = event


def _table() -> dict[tuple[JobState, Event], JobState]:
    table = {
        (S.QUEUED, E.START): S.STARTING,
        (S.PARKED, E.RESUME): S.RESUMING,
        (S.STARTING, E.PLACED): S.RUNNING,
        (S.RESUMING, E.PLACED): S.RUNNING,
        (S.RUNNING, E.EVICT): S.EVICTING,
        (S.EVICTING, E.THAWED): S.RUNNING,
        (S.QUEUED, E.HOLD): S.HELD,
        (S.PARKED, E.HOLD): S.HELD,
        (S.UNREACHABLE, E.ANSWERED): S.RUNNING,
    }
    for state in (S.RUNNING, S.EVICTING, S.UNREACHABLE):
        # Its node may have been claimed, or have fallen silent, meanwhile.
        table[state, E.KEPT] = state
        table[state, E.NOT_KEPT] = state
    # Whatever became of a segment, its job waits with or without a checkpoint.
    for state in (*PLACED, S.HELD):
        table[state, E.PARK] = S.PARKED
        table[state, E.REQUEUE] = S.QUEUED
    for state in (S.RUNNING, S.EVICTING):
        table[state, E.SILENT] = S.UNREACHABLE
    for state in PLACED:
        # A checkpoint may be committed while nobody listens, or at the hand of somebody else.
        table[state, E.SAVED] = S.PARKED
        table[state, E.COMPLETED] = S.COMPLETED
    for state in set(S) - TERMINAL:
        table[state, E.FAILED] = S.FAILED
        table[state, E.CANCELLED] = S.CANCELLED
        table[state, E.TIMED_OUT] = S.TIMED_OUT
    return table


TRANSITIONS: Mapping[tuple[JobState, Event], JobState] = MappingProxyType(_table())


def advance(state: JobState, event: Event) -> JobState:
    """
    Return the state that the event leads to.

    Raises:
        IllegalTransitionError: the table has no such line.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransitionError(state, event) from None


def waiting_event(job: Job) -> Event:
    """Return how the job waits from now on: for a resume if it has a checkpoint."""
    return Event.REQUEUE if job.generation is None else Event.PARK
