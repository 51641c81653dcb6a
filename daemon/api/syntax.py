"""What names, paths, images, commands and variables must look like.  Pure.

Every text that a user sends passes one of these before it is stored, so that no later
reader has to wonder about separators, control characters or detours in it.
"""

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

_JOB_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:+=@-]{0,63}")
_NOT_NAME = re.compile(r"[^A-Za-z0-9_.+=@-]+")
_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,253}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")

# The grammar of github.com/distribution/reference, reference.go.
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_DOMAIN = rf"{_HOST}(?:\.{_HOST})*(?::[0-9]{{1,5}})?"
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:{_DOMAIN}/)?{_PART}(?:/{_PART})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
    r"(?:@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9A-Fa-f]{32,128})?"
)

_MAX_IMAGE = 255
_MAX_PATH = 4095  # PATH_MAX without its NUL
_MAX_ARGUMENTS = 4096
#: What one argument may have (MAX_ARG_STRLEN, execve(2)), for all of them together.
_MAX_COMMAND_BYTES = 128 * 1024
_MAX_VARIABLES = 512
_MAX_ENVIRONMENT_BYTES = 128 * 1024

#: The runtime mounts its own file systems here, and nothing may lie over or under them.
_RUNTIME_PLACES = (
    "/dev",
    "/proc",
    "/sys",
    "/etc/hosts",
    "/etc/hostname",
    "/etc/resolv.conf",
    "/sbin/docker-init",
)


def job_name(text: str) -> str:
    """Accept a job's name."""
    if not _JOB_NAME.fullmatch(text):
        raise ValueError("must be 1 to 64 letters, digits or _ . : + = @ -, no sign first but _")
    return text


def name_of(command: Sequence[str]) -> str:
    """Make a job's name of its program's, as the batch systems do."""
    program = posixpath.basename(command[0]) if command else ""
    return _NOT_NAME.sub("_", program).lstrip(".+=@-")[:64] or "job"


def node_name(text: str) -> str:
    """Accept the name of a node."""
    if not _NODE_NAME.fullmatch(text):
        raise ValueError("is not the name of a node")
    return text


def image(text: str) -> str:
    """Accept an image reference, name[:tag][@digest]."""
    if len(text) > _MAX_IMAGE or not _IMAGE.fullmatch(text):
        raise ValueError("is not an image reference such as python:3.12 or host:5000/lab/sim:1")
    return text


def command(words: tuple[str, ...]) -> tuple[str, ...]:
    """Accept a program with its arguments."""
    if not words or not words[0].strip():
        raise ValueError("is missing")
    if len(words) > _MAX_ARGUMENTS or _size(words) > _MAX_COMMAND_BYTES:
        raise ValueError("has more than 4096 words or 128 KiB")
    if any("\0" in word for word in words):
        raise ValueError("contains a NUL character")
    return words


def environment(variables: dict[str, str]) -> dict[str, str]:
    """Accept environment variables; messages never contain their values."""
    for name, value in variables.items():
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"{name[:40]!r} is not the name of a variable")
        if name.upper().startswith("STOPGAP_"):
            raise ValueError(f"{name} cannot be set: names that begin with STOPGAP_ are stopgap's")
        if "\0" in value:
            raise ValueError(f"the value of {name} contains a NUL character")
    if len(variables) > _MAX_VARIABLES or _total(variables) > _MAX_ENVIRONMENT_BYTES:
        raise ValueError("has more than 512 variables or 128 KiB")
    return variables


def path(text: str) -> str:
    """Accept an absolute path without detours."""
    if not text.startswith("/"):
        raise ValueError(f"must be an absolute path, not {text[:80]!r}")
    if len(text.encode()) > _MAX_PATH or any(not char.isprintable() for char in text):
        raise ValueError("is too long or contains control characters")
    if posixpath.normpath(text) != text or text.startswith("//"):
        raise ValueError("must be written without '..', '.', double or trailing slashes")
    return text


def mount_path(text: str) -> str:
    """Accept one side of a mount.  Engines separate the sides with colons."""
    if ":" in path(text):
        raise ValueError("must not contain a colon")
    return text


def mount_target(text: str) -> str:
    """Accept a place in a container."""
    mount_path(text)
    if text == "/" or any(f"{text}/".startswith(f"{place}/") for place in _RUNTIME_PLACES):
        raise ValueError("cannot be mounted over")
    return text


def distinct_targets(mounts: Any) -> Any:
    """Accept mounts that do not hide each other."""
    targets = [mount.target for mount in mounts]
    twice = sorted({target for target in targets if targets.count(target) > 1})
    if twice:
        raise ValueError(f"{twice[0]} is mounted over twice")
    return mounts


def _size(words: tuple[str, ...]) -> int:
    return sum(len(word.encode()) + 1 for word in words)


def _total(variables: Mapping[str, str]) -> int:
    return sum(len(name) + len(value.encode()) + 2 for name, value in variables.items())
