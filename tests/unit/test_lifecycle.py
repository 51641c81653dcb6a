"""The state machine as a table."""

from itertools import product

import pytest

from daemon.core.lifecycle import TRANSITIONS, Event, IllegalTransitionError, advance
from daemon.core.types import PLACED, TERMINAL, JobState


def test_every_live_state_can_reach_an_end() -> None:
    """
    No job can be stuck for ever by design.
    """
    reachable = set(TERMINAL)
    while more := {s for (s, _), t in TRANSITIONS.items() if t in reachable} - reachable:
        reachable |= more

    assert set(JobState) == reachable


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_an_end_is_an_end(state: JobState) -> None:
    """
    Nothing happens to a job that has ended.
    """
    for event in Event:
        with pytest.raises(IllegalTransitionError):
            advance(state, event)


@pytest.mark.parametrize(("state", "event"), list(product(JobState, Event)))
def test_a_pair_is_in_the_table_or_refused(state: JobState, event: Event) -> None:
    """
    There is no third way.
    """
    if (state, event) in TRANSITIONS:
        assert advance(state, event) in JobState
    else:
        with pytest.raises(IllegalTransitionError, match=event.value):
            advance(state, event)


def test_only_a_waiting_job_is_placed() -> None:
    """
    A job that may live somewhere is never placed anew.
    """
    starts = {s for (s, e) in TRANSITIONS if e in {Event.START, Event.RESUME}}

    assert starts.isdisjoint(PLACED)
