"""What every batch adapter promises: one protocol, its capabilities, its errors.

An adapter turns the batch system's answer into nouns of ``daemon.core.types``.
It never decides anything.
"""

from dataclasses import dataclass
from typing import Protocol

from daemon.core.types import Cluster


class AdapterError(Exception):
    """Base of everything an adapter raises."""


class UnreachableError(AdapterError):
    """The batch system did not answer, or only in part.  Retry; believe nothing new."""


class UnparsableError(AdapterError):
    """It answered, but not in a language we speak.  Believe nothing; tell a human."""

    def __init__(self, command: str, reason: str, *, sample: str = "") -> None:
        shown = f": {sample[:200]!r}" if sample else ""
        super().__init__(f"{command} answered what stopgap cannot read: {reason}{shown}")
        self.command = command
        self.sample = sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a batch system can tell."""

    predicts_start_times: bool
    lists_reservations: bool


class BatchAdapter(Protocol):
    """A batch system that can be looked at."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str:
        """The batch system's version once it has answered; empty before."""

    @property
    def capabilities(self) -> Capabilities: ...

    def look(self) -> Cluster:
        """
        Return every node the batch system knows, with the claims on it.

        A node is IDLE only if its base state is exactly idle and every flag is
        known to be harmless.  At most two commands are run.  An answer of which a part
        is missing says so in ``partial``, and no node in it is idle.

        Raises:
            UnreachableError: nothing could be learnt; keep the previous picture.
            UnparsableError: the answer made no sense.
        """
