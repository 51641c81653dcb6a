"""One bound for all streams: nobody gets more, and nobody is held back without need."""

from migration.stores.pace import Pace
from tests.contract.clock import ManualClock

PIECE = bytes(1 << 18)


def test_streams_share_their_bound() -> None:
    """
    Two streams of 8 MiB each at 4 MiB a second take four seconds together.
    """
    clock = ManualClock()
    pace = Pace(clock, 4.0)
    for _ in zip(pace.held([PIECE] * 32), pace.held([PIECE] * 32), strict=True):
        pass

    assert abs(4.0 - clock.monotonic()) < 0.5


def test_who_was_late_may_catch_up() -> None:
    """
    What each sleep takes too long is not lost, and a pause gives no right to a flood.
    """
    clock = ManualClock()
    pace = Pace(clock, 4.0)
    for _ in pace.held([PIECE] * 16):
        clock.wait(0.06)
    assert abs(1.0 - clock.monotonic()) < 0.3

    clock.wait(100)
    before = clock.monotonic()
    for _ in pace.held([PIECE] * 16):
        pass
    assert clock.monotonic() - before > 0.6


def test_no_bound_never_waits() -> None:
    """Zero is none."""
    clock = ManualClock()

    assert [PIECE] * 3 == list(Pace(clock, 0.0).held([PIECE] * 3))
    assert 0.0 == clock.monotonic()
