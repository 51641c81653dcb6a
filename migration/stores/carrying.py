"""One generation from the node that has it to the one that needs it, through the daemon.

The source packs and hashes, the target's engine unpacks beside the final name, and the
target's shim checks every byte before the generation appears.  In between only pieces pass
through here; nothing is kept.  What has come whole is not sent again when a stream breaks.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager

import structlog

from daemon.clock import Clock
from daemon.core.types import NodeName, SegmentRef
from migration.access import Access, NodeAccess
from migration.base import (
    CheckpointAwayError,
    EngineError,
    EngineUnreachableError,
    NodeUnfitError,
    NotResumableError,
)
from migration.locks import Locks
from migration.manifest import Manifest
from migration.shim import ShimSaidError
from migration.stores.pace import Pace

_log = structlog.get_logger(__name__)

#: So often a stream is taken up again before its source is given up.
_TRIES = 3
#: For a piece that does not come, or is not taken.
_SILENCE_SECONDS = 60.0
#: For the target to hash what has come and to force it to its disk.
_ARRIVAL_SECONDS = 590.0
#: More than the generation itself: file systems need some for their own books.
_SPARE_BYTES = 16 * 2**20
_NO_SPACE = "No space left"
#: Older engines do not unpack zstd.
_ZSTD_FROM = 23


class _SourceError(Exception):
    """The source failed, and not the target."""

    def __init__(self, words: str, *, silent: bool) -> None:
        super().__init__(words)
        self.silent = silent


class Carrier:
    """Brings generations to nodes."""

    def __init__(self, access: Access, packing: str, pace: Pace, clock: Clock) -> None:
        """Take how streams are packed if both nodes can: ``none``, ``gzip`` or ``zstd``."""
        self._access = access
        self._asked = packing
        self._pace = pace
        self._clock = clock
        #: By job and target: two streams would unpack into one folder.
        self._targets: Locks[tuple[int, NodeName]] = Locks()

    def bring(
        self, ref: SegmentRef, manifest: Manifest | None, holders: Sequence[NodeName]
    ) -> Manifest:
        """
        Have the generation whole on the segment's node; return its manifest.

        ``holders`` are asked in this order.  The job's directory is made in any case.

        Raises:
            CheckpointAwayError: a holder does not answer, and no other one has it.
            NotResumableError: no holder has it whole.
            NodeUnfitError: the segment's node is at fault.
        """
        target = self._access.of(ref.node)
        if manifest is None:
            raise NotResumableError(f"no node is known to have the checkpoint of job {ref.job}")
        failed: dict[NodeName, _SourceError] = {}
        with self._targets.of((ref.job, ref.node)):
            for holder in holders:
                try:
                    return self._from(self._access.of(holder), target, manifest)
                except _SourceError as exc:
                    failed[holder] = exc
        silent = [holder for holder, exc in failed.items() if exc.silent]
        words = "; ".join(f"{holder}: {exc}" for holder, exc in failed.items())
        if silent:
            raise CheckpointAwayError(
                f"its checkpoint lies on {', '.join(silent)}, which does not answer ({words})"
            )
        raise NotResumableError(
            f"generation {manifest.generation} of job {ref.job} could not be brought to "
            f"{ref.node}: {words}"
        )

    def _from(self, source: NodeAccess, target: NodeAccess, wanted: Manifest) -> Manifest:
        """
        Stream the generation from one node, unless the target has it.

        Raises:
            _SourceError: that node did not do it.
            NodeUnfitError: the target did not.
        """
        last = _SourceError("it was not asked", silent=True)
        for _ in range(_TRIES):
            there = self._expected(target, wanted)
            if isinstance(there, Manifest):
                return there
            began = self._clock.monotonic()
            try:
                self._stream(source, target, wanted, there)
                arrived = self._arrived(target, wanted)
            except _SourceError as exc:
                last = exc
                _log.warning("stream.broken", job=wanted.job, source=source.name, reason=str(exc))
                continue
            seconds = self._clock.monotonic() - began
            _log.info(
                "checkpoint.brought",
                job=wanted.job,
                generation=wanted.generation,
                source=source.name,
                node=target.name,
                bytes=wanted.bytes,
                seconds=round(seconds, 3),
            )
            return arrived
        raise last

    def _expected(self, target: NodeAccess, wanted: Manifest) -> Manifest | tuple[str, list[str]]:
        """Return what the target has already: all of it, or a folder and names of files."""
        with _blaming(target.name):
            said = target.shim.store("expect", wanted.job, wanted.generation)
        if said.get("manifest") is not None:
            found = Manifest.model_validate(said["manifest"])
            if (found.time, found.epoch, found.node) != (wanted.time, wanted.epoch, wanted.node):
                raise NodeUnfitError(f"{target.name} has another generation {wanted.generation}")
            return found
        have = [n for n, entry in wanted.files.items() if said["there"].get(n) == entry.size]
        missing = sum(entry.size for n, entry in wanted.files.items() if n not in have)
        if said["free"] < missing + _SPARE_BYTES:
            raise NodeUnfitError(
                f"{target.name} has no room for the checkpoint: it needs {missing >> 20} MiB, and "
                f"{int(said['free']) >> 20} MiB are free"
            )
        return str(said["folder"]), have

    def _stream(
        self,
        source: NodeAccess,
        target: NodeAccess,
        wanted: Manifest,
        there: tuple[str, list[str]],
    ) -> None:
        folder, have = there
        words = (wanted.job, wanted.generation, self._packing(target), *have)
        with (
            _blaming(target.name),
            target.host.files(long=True) as files,
            closing(self._sent(source, words)) as pieces,
        ):
            files.unpack(folder, pieces, silence_seconds=_SILENCE_SECONDS)

    def _sent(self, source: NodeAccess, words: tuple[object, ...]) -> Generator[bytes, None, None]:
        try:
            with source.shim.send(*words, silence_seconds=_SILENCE_SECONDS) as pieces:
                yield from self._pace.held(pieces)
        except EngineError as exc:
            silent = isinstance(exc, EngineUnreachableError)
            raise _SourceError(str(exc), silent=silent) from exc

    def _arrived(self, target: NodeAccess, wanted: Manifest) -> Manifest:
        with _blaming(target.name):
            try:
                said = target.shim.store(
                    "arrive", wanted.job, wanted.generation, seconds=_ARRIVAL_SECONDS
                )
            except ShimSaidError as exc:
                if _NO_SPACE in str(exc):
                    raise
                # What is damaged is removed by now, and sent once more.
                raise _SourceError(str(exc), silent=False) from exc
        return Manifest.model_validate(said["manifest"])

    def _packing(self, target: NodeAccess) -> str:
        if self._asked != "zstd":
            return self._asked
        with _blaming(target.name):
            major = target.docker.facts().version.partition(".")[0]
        return "zstd" if major.isdecimal() and int(major) >= _ZSTD_FROM else "gzip"


@contextmanager
def _blaming(node: NodeName) -> Iterator[None]:
    """Say that what goes wrong within is the node's fault."""
    try:
        yield
    except NodeUnfitError:
        raise
    except EngineError as exc:
        raise NodeUnfitError(f"the checkpoint could not be brought to {node}: {exc}") from exc
