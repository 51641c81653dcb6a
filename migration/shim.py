"""The shim's verbs on one node: what its kernel says about our cgroups."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from migration.base import EngineError, NodeUnfitError
from migration.host import Host, HostProgramError

#: The shim's own limit for a reap is 10 s for each cgroup.
_SECONDS = 30.0
#: What ``env``, ``chroot`` and a shell say when there is no such program.
_NOT_FOUND = {126, 127}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """One segment in the node's cgroups."""

    job: int
    epoch: int
    processes: int
    frozen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """Everything of ours in the node's cgroups."""

    boot_id: str
    segments: tuple[Lived, ...]


class ShimSaidError(EngineError):
    """The shim could not do it, and says why."""


class Shim:
    """``stopgap-runc stopgap VERB`` of one node."""

    def __init__(self, host: Host, program: str, node: str) -> None:
        self._host = host
        self._program = program
        self._node = node

    def census(self) -> Life:
        """Count the processes of every segment."""
        answer = self._call("census")
        return Life(
            boot_id=str(answer["boot_id"]),
            segments=tuple(
                Lived(
                    job=int(found["job"]),
                    epoch=int(found["epoch"]),
                    processes=int(found["processes"]),
                    frozen=bool(found["frozen"]),
                )
                for found in answer["segments"]
            ),
        )

    def freeze(self, job: int, epoch: int) -> None:
        """Stop the segment where it is, also in the middle of a checkpoint."""
        self._call("freeze", str(job), str(epoch))

    def thaw(self, job: int, epoch: int) -> None:
        """Let the segment go on, whoever has frozen it."""
        self._call("thaw", str(job), str(epoch))

    def reap(self, job: int, epoch: int) -> int:
        """Kill the segment, remove its cgroups, and return how many processes are left."""
        return int(self._call("reap", str(job), str(epoch))["processes"])

    def fingerprint(self) -> dict[str, Any]:
        """Return what the shim knows about its node."""
        return dict(self._call("fingerprint"))

    def store(self, verb: str, *words: object, seconds: float = _SECONDS) -> dict[str, Any]:
        """Carry out a verb of the node's own store of checkpoints."""
        return dict(self._call("store", verb, *map(str, words), seconds=seconds))

    @contextmanager
    def send(self, *words: object, silence_seconds: float) -> Iterator[Iterator[bytes]]:
        """Yield a generation as a tar archive, while its node packs it."""
        argv = [self._program, "stopgap", "store", "send", *map(str, words)]
        with self._host.pour(argv, silence_seconds=silence_seconds) as pieces:
            yield pieces

    def _call(self, *verb: str, seconds: float = _SECONDS) -> Any:
        """
        Run one verb.

        Raises:
            NodeUnfitError: the node has no shim.
            ShimSaidError: it could not do it.
            EngineUnreachableError: no answer in time.
        """
        try:
            return self._host.call([self._program, "stopgap", *verb], seconds=seconds)
        except HostProgramError as exc:
            if exc.code not in _NOT_FOUND:
                raise ShimSaidError(f"{self._node}: {exc}") from exc
            raise NodeUnfitError(
                f"{self._node} has no shim: run 'stopgap node setup {self._node}'"
            ) from exc
