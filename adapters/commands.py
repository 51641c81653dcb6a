"""The only module that runs programs.

Argument lists only, never a shell; always a time-out and a bound on the output; an
environment that holds nothing of the caller's, because variables such as
``SQUEUE_FORMAT`` silently change what a command prints.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

SAFE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DEFAULT_OUTPUT_BYTES = 256 * 1024 * 1024
_NOTHING: Mapping[str, str] = MappingProxyType({})
_CHUNK = 1 << 16
_POLL_SECONDS = 0.002


class CommandError(Exception):
    """The command gave no answer that could be judged."""


class CommandMissingError(CommandError):
    """There is no such program, or it may not be run."""


class CommandTimeoutError(CommandError):
    """It was still running after its time and was killed with all its children."""


class CommandOutputError(CommandError):
    """It printed more than it was allowed to and was killed with all its children."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a finished program left behind."""

    #: Negative is the signal that ended it.
    code: int
    #: Bytes that are not UTF-8 are kept as surrogates.
    out: str
    err: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAs:
    """Whom a program runs as; needs root."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


def find(program: str, *, bin_dir: str = "") -> str:
    """
    Return the absolute path of a program, looked for in one directory or the safe PATH.

    Raises:
        CommandMissingError: there is none.
    """
    folders = [bin_dir] if bin_dir else SAFE_PATH.split(":")
    candidates = [Path(program)] if program.startswith("/") else [Path(f, program) for f in folders]
    for path in candidates:
        if path.is_absolute() and path.is_file() and os.access(path, os.X_OK):
            return str(path)
    raise CommandMissingError(f"there is no program {program} in {':'.join(folders)}")


def run(
    argv: Sequence[str],
    *,
    timeout_seconds: float,
    bin_dir: str = "",
    env: Mapping[str, str] = _NOTHING,
    stdin: bytes = b"",
    run_as: RunAs | None = None,
    output_bytes: int = DEFAULT_OUTPUT_BYTES,
) -> Answer:
    """
    Run a program to its end and return what it answered.

    Args:
        argv: the program's name and its arguments.
        env: added to the clean environment.
        output_bytes: bound of stdout and stderr together.

    Raises:
        CommandMissingError: there is no such program.
        CommandTimeoutError: it did not end, or kept its output open, in time.
        CommandOutputError: it printed too much.
    """
    program = find(argv[0], bin_dir=bin_dir)
    began = time.monotonic()
    try:
        child = subprocess.Popen(
            [program, *argv[1:]],
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env=_environment(bin_dir, env),
            start_new_session=True,
            user=run_as.uid if run_as else None,
            group=run_as.gid if run_as else None,
            extra_groups=run_as.groups if run_as else None,
            umask=0o022,
        )
    except OSError as exc:
        raise CommandMissingError(f"{program} cannot be run: {exc.strerror}") from exc
    with child:
        try:
            out, err = _exchange(child, stdin, began + timeout_seconds, output_bytes)
            _await_end(child, began + timeout_seconds)
        except TimeoutError as exc:
            told = f"{argv[0]} gave no answer within {timeout_seconds:g} s"
            raise CommandTimeoutError(told) from exc
        finally:
            _kill_group(child)
    return Answer(
        code=child.returncode,
        out=out.decode("utf-8", "surrogateescape"),
        err=err.decode("utf-8", "surrogateescape"),
        seconds=time.monotonic() - began,
    )


def _environment(bin_dir: str, extra: Mapping[str, str]) -> dict[str, str]:
    path = f"{bin_dir}:{SAFE_PATH}" if bin_dir else SAFE_PATH
    return {"LC_ALL": "C.UTF-8", "TZ": "UTC", "PATH": path, **extra}


def _exchange(
    child: subprocess.Popen[bytes], stdin: bytes, deadline: float, bound: int
) -> tuple[bytes, bytes]:
    """Write and read until both outputs are closed."""
    taken: dict[int, bytearray] = {}
    rest = memoryview(stdin)
    with selectors.DefaultSelector() as selector:
        for stream in (child.stdout, child.stderr):
            if stream is not None:
                taken[stream.fileno()] = bytearray()
                selector.register(stream, selectors.EVENT_READ)
        if child.stdin is not None:
            os.set_blocking(child.stdin.fileno(), False)
            selector.register(child.stdin, selectors.EVENT_WRITE)
        while selector.get_map():
            for key, _ in selector.select(_left(deadline)):
                if key.fileobj is child.stdin:
                    rest = _write(child, rest)
                    done = not rest
                else:
                    chunk = os.read(key.fd, _CHUNK)
                    taken[key.fd] += chunk
                    done = not chunk
                if done:
                    selector.unregister(key.fileobj)
                    if key.fileobj is child.stdin and child.stdin is not None:
                        child.stdin.close()
            if sum(map(len, taken.values())) > bound:
                raise CommandOutputError(f"{child.args!r} printed more than {bound} bytes")
    out, err = taken.values()
    return bytes(out), bytes(err)


def _write(child: subprocess.Popen[bytes], rest: memoryview) -> memoryview:
    """Give the child as much as it takes; nothing is left when it does not read."""
    if child.stdin is None:
        return rest[:0]
    try:
        return rest[os.write(child.stdin.fileno(), rest[:_CHUNK]) :]
    except BrokenPipeError:
        return rest[:0]


def _await_end(child: subprocess.Popen[bytes], deadline: float) -> None:
    """Wait without reaping: its number, which is its group's, stays taken."""
    flags = os.WEXITED | os.WNOWAIT | os.WNOHANG
    while os.waitid(os.P_PID, child.pid, flags) is None:
        time.sleep(min(_left(deadline), _POLL_SECONDS))


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    """Kill what the program left in its process group, itself included, and reap it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
