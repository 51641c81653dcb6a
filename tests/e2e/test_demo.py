"""The demo's scenario: what it shows to people, held to its word."""

import pytest

from tests.demo.scenario import Scenario, Size
from tests.demo.view import PlainView
from tests.testbed import Bed


@pytest.mark.bed
@pytest.mark.slow
def test_moved_programs_leave_what_undisturbed_ones_leave(bed: Bed) -> None:
    """
    Every program is moved three times, loses nothing, and delays no priority job.
    """
    report = Scenario(bed, PlainView(), Size()).play()

    assert [] == report.failed
    result = report.document()
    assert result["jobs"] == result["completed"] == result["identical"]
    assert result["fewest_migrations"] >= 3
    assert result["priority_jobs"] == result["priority_completed"]
    assert 0 == result["priority_met_processes"] == result["containers_left"]
