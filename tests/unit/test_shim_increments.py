"""What a checkpoint can stand on, and how it comes to all that it needs of it."""

import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.unit import shim_module

KEY = bytes(range(32))


@pytest.fixture
def shim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A shim whose node keeps its keys and its state in the test's folder."""
    module = shim_module.load()
    monkeypatch.setattr(module, "HERE", str(tmp_path / "node"))
    monkeypatch.setattr(module, "STATE", str(tmp_path / "node/state"))
    (tmp_path / "node/state").mkdir(parents=True)
    (tmp_path / "node/site.key").write_text(KEY.hex())
    return module


@pytest.fixture
def conf(shim: ModuleType, tmp_path: Path) -> Any:
    return shim.Conf(f"instance=i\nnode=n1\ncheckpoints={tmp_path}/root\n")


@pytest.fixture
def record(shim: ModuleType) -> Any:
    record = shim.Record("c", job=7, epoch=3)
    record.save()
    return record


def _pagemap(pages: int) -> bytes:
    head = bytes([1 << 3, pages])
    return bytes(8) + len(head).to_bytes(4, "little") + head


#: Two tasks, and shared memory whose pages are the third file's.
FULL = {
    "inventory.img": b"inventory",
    "core-1.img": b"core",
    "pagemap-1.img": _pagemap(1),
    "pages-1.img": b"a" * 4096,
    "pagemap-2.img": _pagemap(2),
    "pages-2.img": b"b" * 8192,
    "pagemap-shmem-9.img": _pagemap(3),
    "pages-3.img": b"s" * 4096,
}


def _write(
    shim: ModuleType, conf: Any, generation: int, content: dict[str, bytes], **said: Any
) -> dict[str, Any]:
    """Commit a generation as the shim does, on top of what lies below its images already."""
    folder = Path(conf.job_dir(7)) / str(generation)
    (folder / "images").mkdir(parents=True, exist_ok=True)
    (folder / "layer.tar").write_bytes(b"layer")
    for name, data in content.items():
        (folder / "images" / name).write_bytes(data)
    names = [*shim.images_in(str(folder)), "layer.tar"]
    sizes = {name: (folder / name).stat().st_size for name in names}
    files = {
        name: {
            "size": size,
            "sha256": None if shim.is_bulk(name, size) else shim.digest_of(f"{folder}/{name}"),
        }
        for name, size in sizes.items()
    }
    whole = sum(sizes.values())
    body = {
        "format": 1,
        "instance": "i",
        "job": 7,
        "epoch": 3,
        "generation": generation,
        "node": "n1",
        "kind": "periodic",
        "tracked": True,
        "fingerprint": {"criu": "4.2"},
        "files": files,
        "bytes": whole,
        "full_bytes": whole,
        "depth": 0,
        "parent": None,
        "compress": "none",
    } | said
    (folder / "manifest.json").write_text(shim.sign(body, KEY))
    return body


def _next(shim: ModuleType, conf: Any, record: Any, generation: int) -> tuple[Path, Any]:
    """Return the folder of the next generation, and what it stands on."""
    folder = Path(conf.job_dir(7)) / str(generation)
    (folder / "images").mkdir(parents=True)
    return folder, shim.stand_on(conf, record, str(folder), "4.2")


def test_a_dump_stands_on_the_last(shim: ModuleType, conf: Any, record: Any) -> None:
    """
    On links to the tasks' pages and what leads to them; nothing else is kept a second time.
    """
    below = _write(shim, conf, 1, FULL)
    shim.note_tracked(record, 1)

    folder, base = _next(shim, conf, record, 2)

    assert (1, 1, below["full_bytes"]) == (base.generation, base.depth, base.full_bytes)
    expected = {"inventory.img", "pagemap-1.img", "pages-1.img", "pagemap-2.img", "pages-2.img"}
    assert expected == {path.name for path in (folder / "images/parent").iterdir()}
    for name in expected:
        assert (folder / "images/parent" / name).samefile(folder / "../1/images" / name)
        assert below["files"][f"images/{name}"] == base.files[f"images/parent/{name}"]


def test_a_chain_needs_none_of_its_ancestors(shim: ModuleType, conf: Any, record: Any) -> None:
    """
    The third generation has all pages of the first, also when that is deleted.
    """
    _write(shim, conf, 1, FULL)
    shim.note_tracked(record, 1)
    folder, base = _next(shim, conf, record, 2)
    _write(shim, conf, 2, {**FULL, "pages-1.img": b"c"}, depth=base.depth, parent=1)
    shim.note_tracked(record, 2)
    folder, base = _next(shim, conf, record, 3)
    for older in (1, 2):
        shim.remove_tree(str(folder.parent / str(older)))

    assert 2 == base.depth
    assert b"c" == (folder / "images/parent/pages-1.img").read_bytes()
    assert b"a" * 4096 == (folder / "images/parent/parent/pages-1.img").read_bytes()
    assert set(shim.images_in(str(folder))) == set(base.files)


def test_the_note_is_good_for_one_dump(shim: ModuleType, conf: Any, record: Any) -> None:
    """
    Whatever becomes of a dump, the kernel's marks are off: the next one is full.
    """
    _write(shim, conf, 1, FULL)
    shim.note_tracked(record, 1)
    _next(shim, conf, record, 2)

    folder, base = _next(shim, conf, record, 3)

    assert (0, {}) == (base.generation, base.files)
    assert [] == list((folder / "images").iterdir())


FITS: dict[str, Any] = {
    "tracked": True,
    "node": "n1",
    "epoch": 3,
    "kind": "periodic",
    "fingerprint": {"criu": "4.2"},
    "depth": 0,
    "bytes": 200,
    "full_bytes": 100,
}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, True),
        ({"kind": "trial"}, True),
        ({"depth": 7}, True),
        ({"depth": 8}, False),
        ({"bytes": 201}, False),
        ({"kind": "evict"}, False),
        ({"epoch": 2}, False),
        ({"node": "n2"}, False),
        ({"tracked": False}, False),
        ({"fingerprint": {"criu": "4.1.1"}}, False),
    ],
)
def test_only_the_same_segments_checkpoint_is_stood_on(
    shim: ModuleType, *, said: dict[str, Any], expected: bool
) -> None:
    """
    Of this segment, by the same CRIU, and not on too many or too much.
    """
    assert expected is shim.can_carry(FITS | said, "n1", 3, "4.2")


def _gone(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def _cut(folder: Path) -> None:
    os.truncate(folder / "images/pages-2.img", 4096)


def _changed(folder: Path) -> None:
    (folder / "images/pagemap-1.img").write_bytes(_pagemap(2))


def _replaced(folder: Path) -> None:
    (folder / "images/pages-1.img").unlink()
    (folder / "images/pages-1.img").symlink_to("pages-2.img")


def _unsigned(folder: Path) -> None:
    document = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**document, "mac": "0" * 64}))


def test_pages_are_alike_in_a_chain(
    shim: ModuleType, conf: Any, record: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    All compressed or none: CRIU looks for them below one name.
    """
    packed = {name + (".zst" if "pages-" in name else ""): c for name, c in FULL.items()}
    (tmp_path / "zstd").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    conf.compress = "zstd"
    _write(shim, conf, 1, packed, compress="zstd")
    shim.note_tracked(record, 1)
    _, base = _next(shim, conf, record, 2)
    assert "images/parent/pages-1.img.zst" in base.files
    (tmp_path / "zstd").unlink()
    shim.note_tracked(record, 1)

    _, base = _next(shim, conf, record, 3)

    assert {} == base.files


def test_an_earlier_shims_checkpoint_is_not_stood_on(
    shim: ModuleType, conf: Any, record: Any
) -> None:
    """
    Its manifest does not say whether the kernel tracks since then.
    """
    body = _write(shim, conf, 1, FULL)
    del body["tracked"]
    path = Path(conf.job_dir(7)) / "1/manifest.json"
    path.write_text(shim.sign(body, KEY))
    shim.note_tracked(record, 1)

    _, base = _next(shim, conf, record, 2)

    assert 0 == base.generation


@pytest.mark.parametrize("damage", [_gone, _cut, _changed, _replaced, _unsigned])
def test_what_is_not_as_it_was_signed_is_not_stood_on(
    shim: ModuleType, conf: Any, record: Any, damage: Any
) -> None:
    """
    The next dump is full; nothing of what was found goes into it.
    """
    _write(shim, conf, 1, FULL)
    shim.note_tracked(record, 1)
    damage(Path(conf.job_dir(7)) / "1")

    folder, base = _next(shim, conf, record, 2)

    assert (0, 0, {}) == (base.generation, base.depth, base.files)
    assert [] == list((folder / "images").iterdir())


def test_a_file_system_without_links_gets_full_dumps(
    shim: ModuleType, conf: Any, record: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Some shared ones have none between directories.
    """

    def refuse(*_: object, **__: object) -> None:
        raise OSError(1, "Operation not permitted")

    _write(shim, conf, 1, FULL)
    shim.note_tracked(record, 1)
    monkeypatch.setattr(shim.os, "link", refuse)

    folder, base = _next(shim, conf, record, 2)

    assert 0 == base.generation
    assert [] == list((folder / "images").iterdir())


def test_every_entry_of_the_images_is_found(shim: ModuleType, tmp_path: Path) -> None:
    """
    Also empty folders, and links to folders, into which nobody may look.
    """
    (tmp_path / "images/parent/parent").mkdir(parents=True)
    (tmp_path / "images/parent/a.img").touch()
    (tmp_path / "images/b.img").touch()
    (tmp_path / "images/link").symlink_to("parent")

    assert [
        "images/b.img",
        "images/link",
        "images/parent/a.img",
        "images/parent/parent",
    ] == sorted(shim.images_in(str(tmp_path)))


def test_digests_are_not_made_twice(shim: ModuleType, conf: Any) -> None:
    """
    Those of the generation below are taken over, under the names that its files have here.
    """
    _write(shim, conf, 1, FULL)
    body = {"instance": "i", "job": 7, "generation": 1}
    digests = {"images/pages-1.img": "d1", "images/parent/pages-1.img": "d0", "layer.tar": "l"}
    path = Path(conf.job_dir(7)) / "1/digests.json"
    path.write_text(shim.sign({**body, "files": digests}, KEY))
    manifest = {"instance": "i", "job": 7, "generation": 2, "parent": 1}
    folder = f"{conf.job_dir(7)}/2"

    expected = {"images/parent/pages-1.img": "d1", "images/parent/parent/pages-1.img": "d0"}
    assert expected == shim.known_digests(folder, manifest, KEY)
    assert {} == shim.known_digests(folder, {**manifest, "job": 8}, KEY)
    assert {} == shim.known_digests(folder, {**manifest, "parent": None}, KEY)
    assert {} == shim.known_digests(folder, manifest, bytes(32))
