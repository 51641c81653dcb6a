"""The shared store: what is a checkpoint, what is settled, what is forgotten."""

import fcntl
import json
import stat
from pathlib import Path

import pytest

from daemon.core.types import Epoch, Generation, JobId, NodeName, SegmentRef
from migration.manifest import ROOT_MARK, InvalidCheckpointError, read_manifest
from migration.stores.base import RootError
from migration.stores.shared import SharedStore
from tests.unit.generations import store_in, write_generation, write_receipt

JOB = JobId(7)
REF = SegmentRef(job=JOB, epoch=Epoch(3), node=NodeName("n1"))


def test_a_whole_generation_is_a_checkpoint(tmp_path: Path) -> None:
    """With its size, time and epoch from the manifest."""
    write_generation(tmp_path, 7, 2, epoch=3)

    (found,) = store_in(tmp_path).checkpoints(JOB)

    assert (7, 2, 3, 14, 0.25) == (
        found.job,
        found.generation,
        found.epoch,
        found.size_bytes,
        found.seconds,
    )
    assert 1764579231.5 == found.time.timestamp()


def test_what_a_generation_shares_is_told(tmp_path: Path) -> None:
    """With whom, and how much; one of an earlier shim shares nothing."""
    write_generation(tmp_path, 7, 1)
    write_generation(tmp_path, 7, 2, written_bytes=4, parent=1, plain_bytes=100)

    earlier, found = store_in(tmp_path).checkpoints(JOB)

    assert (14, 14, None) == (earlier.size_bytes, earlier.written_bytes, earlier.parent)
    assert (14, 4, 1) == (found.size_bytes, found.written_bytes, found.parent)
    assert (14, 100) == (earlier.plain_bytes, found.plain_bytes)


def test_what_a_generation_stands_on_is_a_part_of_it(tmp_path: Path) -> None:
    """Without a file of it, it is no checkpoint."""
    name = "images/parent/pages-1.img"
    files = {name: {"size": 5, "sha256": None}}
    folder = write_generation(tmp_path, 7, 2, files=files, written_bytes=4, parent=1)
    assert () == store_in(tmp_path).checkpoints(JOB)
    (folder / "images/parent").mkdir()
    (folder / name).write_bytes(b"pages")

    assert 1 == len(store_in(tmp_path).checkpoints(JOB))


def test_another_sites_signature_is_worth_nothing(tmp_path: Path) -> None:
    """Checkpoint images are root's code."""
    folder = write_generation(tmp_path, 7, 1)

    with pytest.raises(InvalidCheckpointError, match="not signed"):
        read_manifest(folder, b"t" * 32)


def test_every_damage_makes_it_invalid(tmp_path: Path) -> None:
    """Truncated, missing, changed, half written, of another job: never resumed from."""
    store = store_in(tmp_path)
    (write_generation(tmp_path, 7, 1) / "layer.tar").write_bytes(b"laye")
    (write_generation(tmp_path, 7, 2) / "layer.tar").unlink()
    changed = write_generation(tmp_path, 7, 3) / "manifest.json"
    envelope = json.loads(changed.read_text())
    envelope["body"] = envelope["body"].replace('"uid": 1000', '"uid": 0')
    changed.write_text(json.dumps(envelope))
    (write_generation(tmp_path, 7, 4) / "manifest.json").write_text('{"body": "')
    write_generation(tmp_path, 7, 5, job=8)
    write_generation(tmp_path, 7, 6, instance="other")
    write_generation(tmp_path, 7, 7, format=2)
    (write_generation(tmp_path, 7, 8) / "manifest.json").unlink()

    assert () == store.checkpoints(JOB)
    for generation in range(1, 9):
        with pytest.raises(InvalidCheckpointError):
            store.manifest(JOB, Generation(generation))


def test_unknown_fields_are_no_damage(tmp_path: Path) -> None:
    """A later version may say more."""
    write_generation(tmp_path, 7, 1, something_new=[1, 2])

    assert 1 == len(store_in(tmp_path).checkpoints(JOB))


def test_the_receipt_names_what_is_settled(tmp_path: Path) -> None:
    """The newest call of the segment wins."""
    write_generation(tmp_path, 7, 1, epoch=3)
    write_generation(tmp_path, 7, 2, epoch=3)
    write_receipt(tmp_path, 7, 3, ok=True, generation=1)

    found = store_in(tmp_path).report(REF).ending(REF.epoch)

    assert found is not None
    assert 1 == found.generation


def test_a_commit_without_a_receipt_is_settled(tmp_path: Path) -> None:
    """The shim may be killed between the two."""
    write_generation(tmp_path, 7, 1, epoch=2)
    write_generation(tmp_path, 7, 2, epoch=3)
    write_receipt(tmp_path, 7, 3, ok=False, error="an earlier try")

    found = store_in(tmp_path).report(REF).ending(REF.epoch)

    assert found is not None
    assert 2 == found.generation


def test_nothing_is_settled_by_another_segment(tmp_path: Path) -> None:
    """Nor by a receipt whose generation is damaged."""
    write_generation(tmp_path, 7, 1, epoch=2)
    write_receipt(tmp_path, 7, 2, ok=True, generation=1)

    assert store_in(tmp_path).report(REF).ending(REF.epoch) is None

    write_receipt(tmp_path, 7, 3, ok=True, generation=9)
    assert store_in(tmp_path).report(REF).ending(REF.epoch) is None


def test_half_a_receipt_is_none(tmp_path: Path) -> None:
    """It is read again later."""
    write_receipt(tmp_path, 7, 3, ok=True)
    receipt = tmp_path / "7" / "receipts" / "3.checkpoint.json"
    receipt.write_text(receipt.read_text()[:-5])

    assert store_in(tmp_path).checkpoint_receipt(REF) is None


def test_a_job_directory_is_for_root_alone(tmp_path: Path) -> None:
    """Checkpoints hold memory; an old cancel must not stop the next try."""
    store = store_in(tmp_path)
    store.prepare(REF)
    store.cancel(REF)

    store.prepare(REF)

    assert 0o700 == stat.S_IMODE(store.folder(JOB).stat().st_mode)
    assert [] == list(store.folder(JOB).iterdir())


def test_forget_keeps_one_and_what_is_newer(tmp_path: Path) -> None:
    """What was never finished goes too, unless a shim works on the job."""
    store = store_in(tmp_path)
    for generation in (1, 2, 3):
        write_generation(tmp_path, 7, generation)
    (tmp_path / "7" / "4" / "images").mkdir(parents=True)

    with (tmp_path / "7" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        store.forget(JOB, keep=Generation(2))
        assert store.busy(JOB)
        assert {"2", "3", "4"} == _numbers(tmp_path)

    store.forget(JOB, keep=Generation(2))
    assert not store.busy(JOB)
    assert {"2", "3"} == _numbers(tmp_path)


def test_forget_all_leaves_nothing(tmp_path: Path) -> None:
    """However often."""
    store = store_in(tmp_path)
    write_generation(tmp_path, 7, 1)
    write_receipt(tmp_path, 7, 1, ok=True)

    store.forget(JOB)
    store.forget(JOB)

    assert not store.folder(JOB).exists()


def _numbers(root: Path) -> set[str]:
    return {path.name for path in (root / "7").iterdir() if path.name.isdecimal()}


@pytest.mark.parametrize("name", ["1/manifest.json", "receipts/3.checkpoint.json"])
def test_what_cannot_be_read_is_not_taken_for_absent(tmp_path: Path, name: str) -> None:
    """A file system that fails for a moment makes no job start from the beginning."""
    write_generation(tmp_path, 7, 1, epoch=3)
    store = store_in(tmp_path)
    unreadable = store.folder(JOB) / name
    unreadable.unlink(missing_ok=True)
    unreadable.mkdir(parents=True)

    with pytest.raises(IsADirectoryError):
        store.report(REF).ending(REF.epoch)


def test_a_root_without_its_mark_hides_its_checkpoints(tmp_path: Path) -> None:
    """What is not mounted may hold anything: nothing is concluded from its absence."""
    store = store_in(tmp_path)
    write_generation(tmp_path, 7, 1, epoch=3)
    (tmp_path / ROOT_MARK).rename(tmp_path / "hidden")

    with pytest.raises(RootError, match="mounted"):
        store.report(REF).ending(REF.epoch)
    with pytest.raises(RootError, match="mounted"):
        store.prepare(REF)
    with pytest.raises(RootError, match="mounted"):
        store.forget(JOB)
    with pytest.raises(RootError, match="mounted"):
        store.claim(tmp_path / "memory")


def test_a_root_of_another_installation_is_refused(tmp_path: Path) -> None:
    """Two of them would number their jobs alike."""
    store_in(tmp_path)

    with pytest.raises(RootError, match="another installation"):
        SharedStore(tmp_path, "other", b"o" * 32).claim(tmp_path / "others-memory")


def test_a_root_may_move_with_its_mark(tmp_path: Path) -> None:
    """An administrator may mount the same file system elsewhere."""
    old, new = tmp_path / "old", tmp_path / "new"
    store_in(old)
    old.rename(new)

    store_in(new)
