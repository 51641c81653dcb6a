"""Checkpoints in a directory that the daemon and all nodes share.

The shim writes generations and receipts; the daemon prepares, reads and deletes.  An empty
mount point looks just like a root without checkpoints, so the root carries a mark, and
without it nothing is concluded from what is not there.
"""

import fcntl
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from daemon.core.types import (
    Checkpoint,
    CheckpointKind,
    Generation,
    JobId,
    NodeName,
    SegmentRef,
)
from daemon.durable import write_whole
from migration import manifest as names
from migration.manifest import (
    CheckpointReceipt,
    InvalidCheckpointError,
    Manifest,
    ResumeReceipt,
)
from migration.stores.base import Report, RootError


class SharedStore:
    """The checkpoints of one installation, as ``migration.stores.base`` promises."""

    on_nodes = False

    def __init__(self, root: Path, instance: str, site_key: bytes) -> None:
        self._root = root
        self._instance = instance
        self._site_key = site_key
        self._mark = ""

    def claim(self, memory: Path) -> None:
        """
        Take the root for this installation, or find that it is the one of the last time.

        ``memory`` is a file in the daemon's own state that remembers which root was marked how.

        Raises:
            RootError: the mark is gone, or another's.
            OSError: one of the two cannot be read or written.
        """
        here, mark = str(self._root), f"{self._instance} {secrets.token_hex(16)}\n"
        marked = ""
        if memory.exists():
            marked, _, mark = memory.read_text().partition("\n")
        self._mark = mark
        if marked != here and not (self._root / names.ROOT_MARK).exists():
            write_whole(self._root / names.ROOT_MARK, [mark.encode()])
        self.check_root()
        write_whole(memory, [f"{here}\n{mark}".encode()])

    def check_root(self) -> None:
        """
        Find out whether what is not in the root is really not there.

        Raises:
            RootError: it cannot be known.
        """
        path = self._root / names.ROOT_MARK
        try:
            found = path.read_text()
        except FileNotFoundError:
            raise RootError(f"{path} is missing; is {self._root} mounted?") from None
        if found != self._mark:
            raise RootError(
                f"{path} is another installation's; give this one a checkpoints.root of its own, "
                "or empty it if that installation is no more"
            )

    def ready(self, node: NodeName) -> None:
        self.check_root()

    def prepare(self, ref: SegmentRef, generation: Generation | None = None) -> None:
        self.check_root()
        folder = self.folder(ref.job)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / names.CANCEL).unlink(missing_ok=True)

    def ask(self, ref: SegmentRef, kind: CheckpointKind | None) -> CheckpointReceipt | None:
        earlier = self.checkpoint_receipt(ref)
        if kind is None and earlier is not None and earlier.evicted:
            return earlier
        self.prepare(ref)
        keep = self.folder(ref.job) / names.KEEP
        if kind is None:
            keep.unlink(missing_ok=True)
        else:
            write_whole(keep, [f"{ref.epoch} {kind}\n".encode()])
        self._receipt(ref, names.checkpoint_receipt_name(ref.epoch)).unlink(missing_ok=True)
        return None

    def report(self, ref: SegmentRef) -> Report:
        # First the lock, then the look: what a shim leaves is written under the lock.
        busy = self.busy(ref.job)
        self.check_root()
        receipt = self.checkpoint_receipt(ref)
        return Report(busy=busy, receipt=receipt, checkpoints=self.checkpoints(ref.job))

    def folder(self, job: JobId) -> Path:
        """Return the job's directory."""
        return self._root / str(int(job))

    def manifest(self, job: JobId, generation: Generation) -> Manifest:
        """
        Return the manifest of a generation that can be resumed from.

        Raises:
            InvalidCheckpointError: it cannot.
        """
        folder = self.folder(job) / str(int(generation))
        found = names.read_manifest(folder, self._site_key)
        said = (found.instance, found.job, found.generation)
        if said != (self._instance, job, generation):
            raise InvalidCheckpointError(f"{folder}: its manifest is of {said}")
        names.check_sizes(folder, found)
        return found

    def checkpoints(self, job: JobId) -> tuple[Checkpoint, ...]:
        self.check_root()
        found = []
        for generation in self._numbers(job):
            try:
                found.append(self.manifest(job, generation).checkpoint())
            except InvalidCheckpointError:
                continue
        return tuple(found)

    def has_ended(self, ref: SegmentRef) -> bool:
        return self.report(ref).ending(ref.epoch) is not None

    def checkpoint_receipt(self, ref: SegmentRef) -> CheckpointReceipt | None:
        """Return what the segment's last checkpoint call did."""
        path = self._receipt(ref, names.checkpoint_receipt_name(ref.epoch))
        return names.read_receipt(path, CheckpointReceipt)

    def resume_receipt(self, ref: SegmentRef) -> ResumeReceipt | None:
        """Return what the segment's resume did."""
        path = self._receipt(ref, names.resume_receipt_name(ref.epoch))
        return names.read_receipt(path, ResumeReceipt)

    def note_end(self, ref: SegmentRef) -> None:
        (self.folder(ref.job) / names.ended_name(ref.epoch)).touch(mode=0o600, exist_ok=False)

    def cancel(self, ref: SegmentRef) -> None:
        (self.folder(ref.job) / names.CANCEL).touch(mode=0o600)

    def busy(self, job: JobId) -> bool:
        """Tell whether a shim works on the job now."""
        try:
            lock = os.open(self.folder(job) / names.LOCK, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def forget(self, job: JobId, *, keep: Generation | None = None) -> None:
        self.check_root()
        if keep is None:
            _delete(self.folder(job))
            return
        busy = self.busy(job)
        for generation in self._numbers(job):
            folder = self.folder(job) / str(generation)
            unfinished = not busy and not (folder / names.MANIFEST).exists()
            if generation < keep or (generation > keep and unfinished):
                _delete(folder)

    def spread(self, ref: SegmentRef, generation: Generation) -> None:
        pass

    def where(self, job: JobId) -> Mapping[Generation, tuple[NodeName, ...]]:
        return {}

    def answered(self, node: NodeName) -> None:
        pass

    def _numbers(self, job: JobId) -> list[Generation]:
        try:
            found = [entry.name for entry in self.folder(job).iterdir()]
        except FileNotFoundError:
            return []
        return sorted(Generation(int(name)) for name in found if name.isdecimal())

    def _receipt(self, ref: SegmentRef, name: str) -> Path:
        return self.folder(ref.job) / names.RECEIPTS / name


def _delete(folder: Path) -> None:
    """Take the manifest first: half a deletion must not look like a checkpoint."""
    (folder / names.MANIFEST).unlink(missing_ok=True)
    # The digests of the pages may still be on their way: what comes late goes in the second try.
    for last in (False, True):
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            return
        except OSError:
            if last:
                raise
        else:
            return
