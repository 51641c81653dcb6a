"""Checkpointing one segment: one call, and the shim's receipt decides what it did.

The engine's answer proves nothing: it can be lost, late, or about something else.  The
receipt says whether there is a generation and when the cgroup was empty.
"""

import secrets
from contextlib import suppress
from dataclasses import dataclass

from daemon.clock import Clock
from daemon.core.types import Checkpoint, CheckpointKind, SegmentRef
from migration.base import EngineError, EngineUnreachableError, Kept, NotSavedError, Saved
from migration.docker import Docker, EngineSaidError
from migration.manifest import CheckpointReceipt
from migration.stores.base import Report, Store
from migration.words import plain

#: For a shim that was told to stop, or whose engine died, to write its receipt.
_RECEIPT_SECONDS = 20.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A generation is in place."""

    saved: Saved
    #: False when the shim could not prove that the segment is gone.
    empty: bool


class Saver:
    """Carries out checkpoints."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def checkpoint(
        self, docker: Docker, container: str, ref: SegmentRef, deadline_seconds: float
    ) -> Committed:
        """
        Save the segment; when it was saved before, tell of that.

        Raises:
            NotSavedError: the job goes on in the state in which it was found.
            EngineUnreachableError: it may or may not have happened.
        """
        began = self._clock.monotonic()
        report, frozen = self._try(docker, container, ref, None, deadline_seconds)
        seconds = self._clock.monotonic() - began
        checkpoint, receipt = report.ending(ref.epoch), report.receipt
        if checkpoint is None or receipt is None:
            words = f"the checkpoint of job {ref.job} has a receipt, but cannot be read"
            raise EngineUnreachableError(words)
        return Committed(
            saved=_saved(checkpoint, receipt, seconds, frozen=frozen or receipt.found_frozen),
            empty=receipt.empty is not None,
        )

    def save(
        self,
        docker: Docker,
        container: str,
        ref: SegmentRef,
        kind: CheckpointKind,
        deadline_seconds: float,
    ) -> Kept:
        """
        Save the segment and let it go on.

        Raises:
            NotSavedError: the job goes on in the state in which it was found.
            EngineUnreachableError: it may or may not have happened.
        """
        before = _newest_kept(self._report(ref), ref)
        try:
            report, _ = self._try(docker, container, ref, kind, deadline_seconds)
        except (NotSavedError, EngineUnreachableError):
            found = _newest_kept(self._report(ref), ref)
            if found is None or found == before:
                raise
            # The shim was killed before it could say so: the manifest is the truth.
            return Kept(checkpoint=found, freeze_seconds=found.seconds)
        found, receipt = _newest_kept(report, ref), report.receipt
        if found is None or receipt is None or found.generation != receipt.generation:
            words = f"the checkpoint of job {ref.job} has a receipt, but cannot be read"
            raise EngineUnreachableError(words)
        still = (receipt.committed or 0.0) - (receipt.frozen or 0.0)
        return Kept(checkpoint=found, freeze_seconds=max(0.0, still))

    def settled(self, ref: SegmentRef) -> Checkpoint | None:
        """
        Return the checkpoint that the segment left, if there is one.

        A shim whose engine was killed saves the job on its own: its end is waited for.

        Raises:
            EngineUnreachableError: it is still at work, or the checkpoints cannot be read.
        """
        until = self._clock.monotonic() + _RECEIPT_SECONDS
        while (report := self._report(ref)).busy:
            if self._clock.monotonic() > until:
                words = f"job {ref.job} is still being saved on {ref.node}"
                raise EngineUnreachableError(words)
            self._clock.wait(_POLL_SECONDS)
        return report.ending(ref.epoch)

    def _report(self, ref: SegmentRef) -> Report:
        try:
            return self._store.report(ref)
        except OSError as exc:
            words = f"the checkpoints of job {ref.job} cannot be read: {exc}"
            raise EngineUnreachableError(words) from exc

    def _try(
        self,
        docker: Docker,
        container: str,
        ref: SegmentRef,
        kind: CheckpointKind | None,
        seconds: float,
    ) -> tuple[Report, bool]:
        """Return what lies there after a success, and whether the engine had paused the job."""
        try:
            earlier = self._store.ask(ref, kind)
        except OSError as exc:
            raise NotSavedError(str(exc), frozen=_is_paused(docker, container)) from exc
        if earlier is not None:
            return self._report(ref), False
        # Asked before, for afterwards the engine's own pause is in the way.
        paused = _is_paused(docker, container)
        report = self._ask(docker, container, ref, seconds, leave=kind is not None)
        receipt = report.receipt
        if receipt is None:
            raise EngineUnreachableError(f"{container} was checkpointed, but left no receipt")
        if not receipt.ok:
            why = plain(receipt.error or "no reason given")
            raise NotSavedError(why, frozen=paused or receipt.found_frozen)
        if receipt.evicted is not (kind is None):
            # An earlier call's, which came through late.
            raise EngineUnreachableError(f"{container} was checkpointed as {receipt.kind}")
        return report, paused

    def _ask(
        self, docker: Docker, container: str, ref: SegmentRef, seconds: float, *, leave: bool
    ) -> Report:
        # A name of its own for each try: Docker refuses one that it has seen (B58).  ``Exit`` is
        # for the books: the shim looks at the mark, for an engine that was restarted may lie.
        name = f"stopgap-{secrets.token_hex(6)}"
        body = {"CheckpointID": name, "Exit": not leave}
        where = f"/containers/{container}/checkpoints"
        until = self._clock.monotonic() + seconds
        try:
            docker.call("POST", where, body=body, seconds=seconds)
        except EngineSaidError as exc:
            report = self._report(ref)
            if report.receipt is None:
                # The shim was never asked: the container is gone, or has ended.
                raise NotSavedError(exc.words, frozen=_is_paused(docker, container)) from exc
            return report
        except EngineUnreachableError:
            late = self._late_report(ref, until)
            if late is None:
                raise
            return late
        if leave:
            # Or the container would gather the engine's stubs for as long as it runs.
            with suppress(EngineError):
                docker.call("DELETE", f"{where}/{name}")
        return self._report(ref)

    def _late_report(self, ref: SegmentRef, until: float) -> Report | None:
        """Wait for a shim that works on although its engine does not answer."""
        last = max(until, self._clock.monotonic()) + _RECEIPT_SECONDS
        while (now := self._clock.monotonic()) < last:
            # Where the checkpoints are read through the engine, it may answer again.
            with suppress(EngineUnreachableError):
                report = self._report(ref)
                if report.receipt is not None:
                    return report
                if not report.busy:
                    return None
                if now > until:
                    self._store.cancel(ref)
            self._clock.wait(_POLL_SECONDS)
        return None


def _newest_kept(report: Report, ref: SegmentRef) -> Checkpoint | None:
    kept = [c for c in report.checkpoints if c.kind is not CheckpointKind.EVICTION]
    return next((c for c in reversed(kept) if c.epoch == ref.epoch), None)


def _saved(
    checkpoint: Checkpoint, receipt: CheckpointReceipt, seconds: float, *, frozen: bool
) -> Saved:
    # The node's clock is another one: only differences of its moments are used, counted
    # back from the answer, which comes right after the cgroup was empty.
    freeze_seconds = 0.0
    if not frozen and receipt.frozen is not None and receipt.empty is not None:
        freeze_seconds = max(0.0, seconds - (receipt.empty - receipt.frozen))
    return Saved(
        checkpoint=checkpoint,
        freeze_seconds=freeze_seconds,
        vacate_seconds=seconds,
    )


def _is_paused(docker: Docker, container: str) -> bool:
    """
    Tell whether the engine has paused the job.

    Raises:
        NotSavedError: there is nothing to save.
    """
    try:
        state = docker.get(f"/containers/{container}/json")["State"]
    except EngineSaidError as exc:
        raise NotSavedError(exc.words, frozen=False) from exc
    if not state["Running"]:
        raise NotSavedError(f"{container} is not running", frozen=False)
    return bool(state["Paused"])
