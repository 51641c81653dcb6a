"""Copies a job's log to the file that its submitter named, as the submitter."""

from collections.abc import Iterable

from adapters.commands import CommandError, RunAs, run
from daemon.core.types import Owner


class OutputError(Exception):
    """The file could not be written."""


class OutputWriter:
    """Writes as somebody else, through a program of the system's that drops root first."""

    def write(self, path: str, owner: Owner, chunks: Iterable[bytes]) -> None:
        """
        Replace the file's content.

        Raises:
            OutputError: it could not be written; the job is none the worse for it.
        """
        # nofollow: the submitter can put a link to somebody else's file there at any time.
        argv = ("dd", f"of={path}", "oflag=nofollow", "status=none", "bs=1M", "iflag=fullblock")
        try:
            answer = run(
                argv,
                timeout_seconds=60.0,
                stdin=b"".join(chunks),
                run_as=RunAs(uid=owner.uid, gid=owner.gid, groups=owner.groups),
            )
        except CommandError as exc:
            raise OutputError(f"{path}: {exc}") from exc
        if answer.code != 0:
            raise OutputError(f"{path}: {answer.err.strip() or answer.code}")
