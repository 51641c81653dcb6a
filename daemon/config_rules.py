"""What single values of a configuration must look like, and how problems are told."""

import copy
import os.path
import re
import string
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound=BaseModel)

_INSTANCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{1,31}")
_HOURS = re.compile(r"(\d\d):([0-5]\d)-(\d\d):([0-5]\d)", re.ASCII)
#: Minutes.
_DAY = 24 * 60
_SCHEMES = ("unix", "ssh", "tcp")

#: The system's own: sockets and devices live here, and no shared file system does.
SYSTEM_PLACES = ("/boot", "/dev", "/etc", "/proc", "/root", "/run", "/sys", "/var/run")


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why a configuration cannot be used; the first key is the one to change."""

    keys: tuple[str, ...]
    message: str

    def __str__(self) -> str:
        return f"{self.keys[0]}: {self.message}"


def validated(model: type[M], raw: dict[str, Any]) -> tuple[M | None, list[Problem]]:
    """Validate; with problems, return also what is left without the faulty keys, if anything."""
    try:
        return model.model_validate(raw), []
    except ValidationError as exc:
        errors = exc.errors(include_url=False)
    problems = [Problem((_dotted(error["loc"], raw),), _message(error)) for error in errors]
    rest = copy.deepcopy(raw)
    for error in errors:
        _prune(rest, _dotted(error["loc"], raw).split("."))
    try:
        return model.model_validate(rest), problems
    except ValidationError:
        return None, problems


def _dotted(loc: tuple[int | str, ...], raw: dict[str, Any]) -> str:
    """Name the key as it is written in the file: a union's tag is not written there."""
    parts: list[str] = []
    at: Any = raw
    for index, step in enumerate(loc):
        inside = isinstance(at, dict) and step in at
        if isinstance(at, dict) and not inside and index < len(loc) - 1:
            continue
        parts.append(str(step))
        at = at[step] if inside or (isinstance(at, list) and isinstance(step, int)) else None
    return ".".join(parts)


def _message(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return "there is no such key"
    text: str = error["msg"].removeprefix("Value error, ")
    shown = error["input"]
    scalar = isinstance(shown, str | int | float)
    return f"{text} (it is {shown!r})" if scalar else text


def _prune(raw: dict[str, Any], parts: list[str]) -> None:
    *path, last = parts
    at: Any = raw
    for step in path:
        if isinstance(at, dict) and isinstance(at.get(step), dict):
            at = at[step]
        else:
            last = step
            break
    if isinstance(at, dict):
        at.pop(last, None)


def overlaps(one: str, other: str) -> bool:
    """Tell whether one path is the other one, or above or below it."""
    shared = os.path.commonpath([one, other])
    return shared in {os.path.normpath(one), os.path.normpath(other)}


def one_line(text: str) -> str:
    """Accept text that can stand in a line of a file."""
    if any(not char.isprintable() for char in text):
        raise ValueError("must not contain control characters")
    return text


def hours(text: str) -> str:
    """Accept a time of the day from and until, such as 20:00-06:00."""
    start, end = minutes(text)
    if start == end:
        raise ValueError("must not end when it begins: the whole day is 00:00-24:00")
    return text


def minutes(text: str) -> tuple[int, int]:
    """
    Return both times in minutes since midnight.

    Raises:
        ValueError: that is no time of the day.
    """
    found = _HOURS.fullmatch(text)
    if found is None:
        raise ValueError('must be two times of the day such as "20:00-06:00"')
    first, second, third, fourth = map(int, found.groups())
    start, end = first * 60 + second, third * 60 + fourth
    if start >= _DAY or end > _DAY:
        raise ValueError("must not be later than 24:00")
    return start, end


def instance(text: str) -> str:
    """Accept a name that may be part of container names, labels and cgroups."""
    if not _INSTANCE.fullmatch(text):
        raise ValueError("must be 2 to 32 letters, digits, '_', '.' or '-', no sign first")
    return text


def absolute_path(path: Path) -> Path:
    """Accept an absolute path without detours."""
    _check_path(one_line(str(path)))
    return path


def optional_path(text: str) -> str:
    """Accept an absolute path, or nothing."""
    if text:
        _check_path(one_line(text))
    return text


def template(text: str) -> str:
    """Accept text in which only {node} is replaced."""
    one_line(text)
    try:
        fields = [part[1:] for part in string.Formatter().parse(text) if part[1] is not None]
    except ValueError as exc:
        raise ValueError(f"is not a template: {exc}") from exc
    if any(field != ("node", "", None) for field in fields):
        raise ValueError("may contain {node} and no other braces")
    return text


def file_template(text: str) -> str:
    """Accept a template of an absolute path."""
    _check_path(template(text))
    return text


def engine_address(text: str) -> str:
    """Accept a template of an engine's address."""
    scheme, found, rest = template(text).partition("://")
    if not found or scheme not in _SCHEMES or not rest:
        raise ValueError("must start with unix://, ssh:// or tcp:// and name a place")
    if scheme == "unix":
        _check_path(rest)
    return text


def listen_address(text: str) -> str:
    """Accept host:port, or nothing."""
    if text:
        split_address(text)
    return text


def split_address(text: str) -> tuple[str, int]:
    """
    Split host:port; an IPv6 host stands in brackets.

    Raises:
        ValueError: it is neither.
    """
    host, found, port = one_line(text).rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (found and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError('must be host:port, for example "10.0.0.1:6819", or ""')
    return host, int(port)


def hook_url(text: str) -> str:
    """Accept the base of an HTTP address, or nothing."""
    if not text:
        return text
    try:
        url = urlsplit(one_line(text))
        good = url.scheme == "http" and bool(url.hostname) and url.port is not None
    except ValueError:
        good = False
    else:
        good = good and not (url.path or url.query or url.fragment or url.username)
    if not good or " " in text:
        raise ValueError('must be http://host:port without a path, or ""')
    return text


def mount_prefix(text: str) -> str:
    """Accept a directory whose content jobs may see."""
    _check_path(one_line(text))
    if any(overlaps(text, place) for place in SYSTEM_PLACES):
        raise ValueError("holds or lies in the system's own places, which jobs never see")
    return text


def _check_path(text: str) -> None:
    if not text.startswith("/"):
        raise ValueError("must be an absolute path")
    if os.path.normpath(text) != text or text.startswith("//"):
        raise ValueError("must be written without '..', '.', double or trailing slashes")
