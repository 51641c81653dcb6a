"""Amounts as HPC users write them."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.cli import units


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("512", 512),
        ("512M", 512),
        ("4G", 4096),
        ("4g", 4096),
        ("4GB", 4096),
        ("4GiB", 4096),
        ("1.5G", 1536),
        ("1T", 1048576),
        ("1K", 1),
        ("1025K", 2),
    ],
)
def test_memory_is_read_as_slurm_reads_it(text: str, mib: int) -> None:
    """A number alone counts MiB, and nothing is rounded down."""
    assert mib == units.memory_mib(text)


@pytest.mark.parametrize("text", ["", "G", "-1", "1P", "4 G B", "0x10", "1e3", "٣", "9" * 40])
def test_what_is_no_memory_is_told_so(text: str) -> None:
    """The error shows what to write."""
    with pytest.raises(ValueError, match="512M or 4G"):
        units.memory_mib(text)


@pytest.mark.parametrize("text", ["0", "0G", "0.0"])
def test_all_memory_cannot_be_asked_for(text: str) -> None:
    """--mem 0 means all of a node in Slurm; here it means a mistake."""
    with pytest.raises(ValueError, match="what it needs at its peak"):
        units.memory_mib(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("90:30", 5430),
        ("2:03:04", 7384),
        ("1-12", 129600),
        ("1-12:30", 131400),
        ("1-12:00:00", 129600),
        ("0-0:0:1", 1),
    ],
)
def test_times_are_read_as_slurm_reads_them(text: str, seconds: int) -> None:
    """All six forms of sbatch's --time."""
    assert seconds == units.time_seconds(text)


@pytest.mark.parametrize("text", ["", "1:2:3:4", "1-", "-5", "1h", "1-1-1", "one", "1 2"])
def test_what_is_no_time_is_told_so(text: str) -> None:
    """The error shows what to write."""
    with pytest.raises(ValueError, match="1-12:00:00"):
        units.time_seconds(text)


@pytest.mark.parametrize("text", ["1:99", "1:60:00", "1-24", "2:00:60", "1-0:61"])
def test_an_amount_that_runs_over_is_a_slip(text: str) -> None:
    """Nobody means ninety-nine seconds after a minute."""
    with pytest.raises(ValueError, match="are more than"):
        units.time_seconds(text)


def test_no_time_is_not_a_time() -> None:
    """A limit of nothing would end a job before it starts."""
    with pytest.raises(ValueError, match="leave the limit out"):
        units.time_seconds("0")


@given(st.integers(min_value=1, max_value=2**26))
def test_memory_reads_back(mib: int) -> None:
    """What is shown can be typed again."""
    assert mib == units.memory_mib(units.show_memory(mib))


@given(st.integers(min_value=3600, max_value=10**9))
def test_times_read_back(seconds: int) -> None:
    """What is shown can be typed again, from an hour on."""
    assert seconds == units.time_seconds(units.show_time(seconds))


@given(st.text(max_size=30))
def test_nothing_but_amounts_gets_through(text: str) -> None:
    """Any text is an amount or a ValueError."""
    for read in (units.memory_mib, units.time_seconds):
        with contextlib.suppress(ValueError):
            assert read(text) > 0


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**41, "2.0 TiB")]
)
def test_sizes_are_shown_for_people(count: int, shown: str) -> None:
    """The unit grows with the number."""
    assert shown == units.show_bytes(count)
