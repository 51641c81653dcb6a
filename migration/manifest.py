"""A checkpoint on disk: its names, its manifest, the receipts, and what makes one valid.

The names are the contract with the shim (docs/node-protocol.md).  Nothing here writes.
"""

import hashlib
import hmac
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from daemon.core.types import Checkpoint, CheckpointKind, Epoch, Generation, JobId, Machine

FORMAT = 1
MANIFEST = "manifest.json"
DIGESTS = "digests.json"
IMAGES = "images"
LAYER = "layer.tar"
RECEIPTS = "receipts"
CANCEL = "cancel"
#: Which segment goes on from its checkpoints, and as what kind they count.
KEEP = "keep"
LOCK = "lock"
#: In the root: whose it is.
ROOT_MARK = "stopgap-root"


class InvalidCheckpointError(Exception):
    """The generation cannot be resumed from, and the message says why."""


class _Document(BaseModel):
    """Fields of a later version are not ours to judge."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class FileEntry(_Document):
    """A file of a generation; the pages' digests come later, in a file of their own."""

    size: int
    sha256: str | None = None


class Manifest(_Document):
    """What a generation consists of."""

    format: int
    instance: str
    job: int
    epoch: int
    generation: int
    node: str
    time: float
    uid: int
    seconds: float
    image: str | None = None
    criu_options: tuple[str, ...] = ()
    fingerprint: dict[str, str | int | None] = {}
    files: dict[str, FileEntry]
    layer_bytes: int
    bytes: int
    #: Without what it has in common with ``parent``; earlier shims wrote all anew.
    written_bytes: int | None = None
    parent: int | None = None
    #: With everything as it is in memory, not compressed.
    plain_bytes: int | None = None
    #: Those of an earlier shim all ended their segment.
    kind: CheckpointKind = CheckpointKind.EVICTION

    def checkpoint(self) -> Checkpoint:
        """Return it as a noun."""
        return Checkpoint(
            job=JobId(self.job),
            generation=Generation(self.generation),
            epoch=Epoch(self.epoch),
            time=datetime.fromtimestamp(self.time, UTC),
            size_bytes=self.bytes,
            seconds=self.seconds,
            kind=self.kind,
            machine=self._machine(),
            shared_bytes=0 if self.written_bytes is None else self.bytes - self.written_bytes,
            saved_bytes=0 if self.plain_bytes is None else self.plain_bytes - self.bytes,
            parent=None if self.parent is None else Generation(self.parent),
        )

    def _machine(self) -> Machine:
        said = {name: str(value or "") for name, value in self.fingerprint.items()}
        return Machine(
            architecture=said.get("machine", ""),
            cgroup=said.get("cgroup", ""),
            cpu=frozenset(said.get("cpu", "").split()),
            criu=said.get("criu", ""),
        )


class CheckpointReceipt(_Document):
    """What a checkpoint call of a segment did.  Moments are of the node's clock."""

    ok: bool
    epoch: int
    generation: int | None = None
    bytes: int | None = None
    began: float
    frozen: float | None = None
    committed: float | None = None
    #: None when something survived the kill.
    empty: float | None = None
    dump_seconds: float | None = None
    error: str | None = None
    found_frozen: bool = False
    #: Empty before it was decided.
    kind: CheckpointKind | Literal[""] = CheckpointKind.EVICTION

    @property
    def evicted(self) -> bool:
        """Whether the segment ended with it."""
        return self.ok and self.kind is CheckpointKind.EVICTION


class ResumeReceipt(_Document):
    """What a create with a resume ticket did."""

    ok: bool
    epoch: int
    generation: int | None = None
    began: float
    restored: float | None = None
    error: str | None = None
    criu: str | list[str] | None = None
    #: Files that are not as the generation knows them, and could not be put back.
    changed: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        """The shim's words, and CRIU's."""
        lines = [self.criu] if isinstance(self.criu, str) else self.criu or []
        return one_line("; ".join(line for line in (self.error or "", *lines) if line))


def one_line(text: str) -> str:
    """Fold a text with line breaks, for logs and tables."""
    return " ".join(text.split())


class _Envelope(_Document):
    body: str
    mac: str


def checkpoint_receipt_name(epoch: Epoch) -> str:
    """Return its file name within the receipts."""
    return f"{epoch}.checkpoint.json"


def ended_name(epoch: Epoch) -> str:
    """Return the name of the mark of a segment's end within the job's directory."""
    return f"ended.{epoch}"


def resume_receipt_name(epoch: Epoch) -> str:
    """Return its file name within the receipts."""
    return f"{epoch}.resume.json"


def read_manifest(folder: Path, site_key: bytes) -> Manifest:
    """
    Return the manifest of a generation's folder if it is signed with the site's key.

    Raises:
        InvalidCheckpointError: it is not there, not ours, or not of this format.
        OSError: it may be there, but cannot be read now.
    """
    try:
        text = (folder / MANIFEST).read_bytes()
        envelope = _Envelope.model_validate_json(text)
        mac = hmac.new(site_key, envelope.body.encode(), hashlib.sha256).hexdigest()
        if not hmac.compare_digest(mac.encode(), envelope.mac.encode()):
            raise InvalidCheckpointError(f"{folder}: its manifest is not signed by this site")
        manifest = Manifest.model_validate_json(envelope.body)
    except FileNotFoundError:
        raise InvalidCheckpointError(f"{folder}: there is no manifest") from None
    except ValidationError as exc:
        raise InvalidCheckpointError(f"{folder}: its manifest cannot be read: {exc}") from exc
    if manifest.format != FORMAT:
        raise InvalidCheckpointError(f"{folder}: it is of format {manifest.format}, not {FORMAT}")
    return manifest


def check_sizes(folder: Path, manifest: Manifest) -> None:
    """
    Compare every file of the generation with the manifest.

    Raises:
        InvalidCheckpointError: one is missing or of another size.
    """
    for name, entry in manifest.files.items():
        try:
            size = (folder / name).lstat().st_size
        except FileNotFoundError as exc:
            raise InvalidCheckpointError(f"{folder}: {name} is missing") from exc
        if size != entry.size:
            raise InvalidCheckpointError(f"{folder}: {name} has {size} bytes, not {entry.size}")


_Receipt = TypeVar("_Receipt", CheckpointReceipt, ResumeReceipt)


def read_receipt(path: Path, kind: type[_Receipt]) -> _Receipt | None:
    """Return a receipt, or None when there is none; half a receipt is none."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
