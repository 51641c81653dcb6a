"""Amounts as HPC users write and read them.  Pure.

Memory and times follow sbatch(1): --mem counts MiB unless a suffix says otherwise, --time
counts minutes unless colons or a dash say otherwise.
"""

import math
import re

_MEMORY = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMGT]?)(?:I?B)?", re.ASCII | re.IGNORECASE)
_MIB = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2}
_TIME = re.compile(
    r"(?:(?P<days>[0-9]+)-)?(?P<first>[0-9]+)(?::(?P<second>[0-9]+))?(?::(?P<third>[0-9]+))?",
    re.ASCII,
)
_DIGITS = 12  # more is no amount of anything


def memory_mib(text: str) -> int:
    """
    Read an amount of memory, rounded up to MiB.

    Raises:
        ValueError: with what to write instead.
    """
    found = _MEMORY.fullmatch(text.strip())
    if not found or len(text) > _DIGITS:
        raise ValueError(f"{text!r} is not an amount of memory; write for example 512M or 4G")
    mib = math.ceil(float(found[1]) * _MIB[found[2].upper()])
    if mib == 0:
        raise ValueError(
            "a job needs memory; write what it needs at its peak, for example 2G "
            "(all memory of a node cannot be asked for)"
        )
    return mib


def time_seconds(text: str) -> int:
    """
    Read a time limit.

    Raises:
        ValueError: with what to write instead.
    """
    found = _TIME.fullmatch(text.strip())
    if not found or len(text) > 2 * _DIGITS:
        raise ValueError(
            f"{text!r} is not a time; write minutes, MM:SS, HH:MM:SS or D-HH:MM:SS, "
            "for example 1-12:00:00"
        )
    parts = [int(part) for part in found.group("first", "second", "third") if part is not None]
    if found["days"] is not None:
        amounts = [int(found["days"]), *parts, 0, 0][:4]
    elif len(parts) == 3:
        amounts = [0, *parts]
    else:
        amounts = [0, 0, *parts, 0][:4]
    _check_carries(amounts)
    days, hours, minutes, seconds = amounts
    total = days * 86400 + hours * 3600 + minutes * 60 + seconds
    if total == 0:
        raise ValueError("a job needs time; leave the limit out for none")
    return total


def _check_carries(amounts: list[int]) -> None:
    """
    Refuse what was meant to be another amount: only the largest unit may run over.

    Raises:
        ValueError: with what is wrong.
    """
    bounds = (("hours", 24, "a day"), ("minutes", 60, "an hour"), ("seconds", 60, "a minute"))
    larger = amounts[0] > 0
    for amount, (unit, bound, more) in zip(amounts[1:], bounds, strict=True):
        if larger and amount >= bound:
            raise ValueError(
                f"{amount} {unit} are more than {more}; write it so that each part is in its bounds"
            )
        larger = larger or amount > 0


def show_memory(mib: int) -> str:
    """Write an amount of memory so that it reads back the same."""
    for suffix, size in (("T", 1024**2), ("G", 1024)):
        if mib and mib % size == 0:
            return f"{mib // size}{suffix}"
    return f"{mib}M"


def show_bytes(count: int) -> str:
    """Write a size for people."""
    amount = float(count)
    for suffix in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {suffix}" if suffix == "B" else f"{amount:.1f} {suffix}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def show_time(seconds: float) -> str:
    """Write a duration as D-HH:MM:SS, without leading days and hours."""
    whole = int(seconds)
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, left = divmod(rest, 60)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{left:02}"
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"
