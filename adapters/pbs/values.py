"""Single values as PBS prints them.  Pure; what is none of them raises ValueError."""

import re
from datetime import UTC, datetime

VNODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\[\]#@-]*")
_NUMBER = re.compile(r"[0-9]{1,12}")
_SIZE = re.compile(r"([0-9]{1,15})([kmgtp]?)([bw]?)", re.IGNORECASE)
_ZERO = re.compile(r"[0:.]*[kmgtp]?[bw]?", re.IGNORECASE)
_MOMENT = re.compile(
    r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) +([0-9]{1,2}) ([0-9]{2}):([0-9]{2}):([0-9]{2}) ([0-9]{4})"
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_POWERS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}


def fields(line: str) -> list[str]:
    """
    Split a line of ``qstat`` where ``|`` is not escaped; the escapes are left.

    A backslash is doubled unless a quote or a comma follows, so pairs come first.
    """
    if "\\" not in line:
        return line.split("|")
    parts = line.replace("\\\\", "\0").replace("\\|", "\1").split("|")
    return [part.replace("\1", "\\|").replace("\0", "\\\\") for part in parts]


def pair(field: str) -> tuple[str, str, str]:
    """Split ``key=value``; without a value the middle is empty."""
    return field.partition("=")


def listed(text: str) -> tuple[str, ...]:
    """Take a list with commas apart."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def vnodes(expression: str) -> tuple[str, ...]:
    """Return those of ``(n1:ncpus=4)+(n2[0]:ncpus=2+n2[1]:ncpus=2)``, or of ``n1/0*4+n2/0``."""
    names = [re.split("[:/]", part.strip("()"))[0] for part in expression.split("+")]
    return tuple(dict.fromkeys(matched(VNODE, name, "a vnode") for name in names))


def moment(text: str) -> datetime | None:
    """Read a time as ctime(3) prints it; the programs run in UTC.  None is another text."""
    found = _MOMENT.fullmatch(text)
    if found is None or found[1] not in _MONTHS:
        return None
    day, hour, minute, second, year = map(int, found.groups()[1:])
    try:
        return datetime(year, _MONTHS.index(found[1]) + 1, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None


def count(text: str) -> int:
    """Read a number."""
    return int(matched(_NUMBER, text, "a number"))


def mib(text: str) -> int:
    """Read a size such as ``8gb`` or ``3145728kb``, in whole MiB; w is a word of 8 bytes."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:80]!r} for a size")
    number, power, unit = found.groups()
    return (int(number) << _POWERS[power.lower()]) * (8 if unit.lower() == "w" else 1) >> 20


def is_zero(text: str) -> bool:
    """Tell whether an amount of whatever kind is none: ``0``, ``0kb``, ``00:00:00``."""
    return _ZERO.fullmatch(text) is not None


def matched(pattern: re.Pattern[str], text: str, what: str) -> str:
    """Return the text if it is of that pattern."""
    if pattern.fullmatch(text) is None:
        raise ValueError(f"{text[:80]!r} for {what}")
    return text
