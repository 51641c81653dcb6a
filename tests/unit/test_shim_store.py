"""The shim's verbs for a node's own store: what is sent arrives whole, or does not appear."""

import hashlib
import hmac
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.generations import CONTENT, INSTANCE, SITE_KEY, write_generation
from tests.unit.shim_module import SHIM


class Node:
    """A node with the shim and a root of its own, which is marked."""

    def __init__(self, place: Path, name: str) -> None:
        self.root = place / name / "checkpoints"
        self._shim = place / name / "stopgap-runc"
        self._shim.parent.mkdir()
        shutil.copy(SHIM, self._shim)
        conf = {"instance": INSTANCE, "node": name, "checkpoints": str(self.root)}
        text = "".join(f"{key}={value}\n" for key, value in conf.items())
        (self._shim.parent / "stopgap-runc.conf").write_text(text)
        (self._shim.parent / "site.key").write_text(SITE_KEY.hex())
        self.store("mark")

    def run(self, *words: object) -> "subprocess.CompletedProcess[bytes]":
        argv = [sys.executable, str(self._shim), "stopgap", "store", *map(str, words)]
        return subprocess.run(argv, capture_output=True, check=False)

    def store(self, *words: object) -> dict[str, Any]:
        """Carry out a verb that succeeds."""
        done = self.run(*words)
        assert 0 == done.returncode, done.stderr
        return dict(json.loads(done.stdout))

    def refused(self, *words: object) -> str:
        """Carry out a verb that fails, and return what it says."""
        done = self.run(*words)
        assert 0 != done.returncode
        return (done.stderr + done.stdout).decode()

    def send(self, packing: str = "none", *have: str) -> bytes:
        done = self.run("send", 7, 1, packing, *have)
        assert 0 == done.returncode, done.stderr
        return done.stdout

    def take(self, archive: bytes) -> Path:
        """Unpack what was sent, as an engine does; return where it lies."""
        folder = Path(self.store("expect", 7, 1)["folder"])
        subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
        return folder


@pytest.fixture
def source(tmp_path: Path) -> Node:
    node = Node(tmp_path, "n1")
    write_generation(node.root, 7, 1)
    return node


@pytest.fixture
def target(tmp_path: Path) -> Node:
    return Node(tmp_path, "n2")


def test_what_is_sent_arrives(source: Node, target: Node) -> None:
    """With its manifest, digests of all files, the ends of segments and what was cut off."""
    (source.root / "7" / "ended.1").touch()
    os.utime(source.root / "7" / "ended.1", ns=(5, 1_700_000_000_123_456_789))
    tails = source.root / "7" / "tails" / "1"
    tails.mkdir(parents=True)
    (tails / "1.0").write_bytes(b"tail")
    target.take(source.send())

    arrived = target.store("arrive", 7, 1)

    there = target.root / "7"
    assert CONTENT == {name: (there / "1" / name).read_bytes() for name in CONTENT}
    digests = json.loads(json.loads((there / "1" / "digests.json").read_text())["body"])["files"]
    assert {n: hashlib.sha256(c).hexdigest() for n, c in CONTENT.items()} == digests
    assert 1_700_000_000_123_456_789 == (there / "ended.1").stat().st_mtime_ns
    assert b"tail" == (there / "tails" / "1" / "1.0").read_bytes()
    assert ["1", "ended.1", "tails"] == sorted(path.name for path in there.iterdir())
    looked = target.store("look", 7, 1)
    assert [arrived["manifest"]] == looked["manifests"]
    assert arrived["manifest"] == target.store("expect", 7, 1)["manifest"]


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_a_stream_may_be_packed(source: Node, packing: str) -> None:
    """As far as the node has the program; it holds the same."""
    done = {"gzip": ["gzip", "-dc"], "zstd": ["zstd", "-dc"]}
    program = packing if shutil.which(packing) else "gzip"

    packed = source.send(packing)

    plain = subprocess.run(done[program], input=packed, capture_output=True, check=True).stdout
    assert source.send() == plain


def test_what_is_there_is_not_sent_again(source: Node, target: Node) -> None:
    """Every byte is checked all the same."""
    target.take(source.send())
    has = target.store("expect", 7, 1)["there"]
    assert {name: len(content) for name, content in CONTENT.items()}.items() <= has.items()

    rest = source.send("none", *CONTENT)

    with tarfile.open(fileobj=io.BytesIO(rest)) as tar:
        assert ["digests.json", "job/ended.json", "manifest.json"] == tar.getnames()
    target.take(rest)
    target.store("arrive", 7, 1)


def _damage(folder: Path) -> None:
    (folder / "layer.tar").write_bytes(b"lover")


def _shorten(folder: Path) -> None:
    (folder / "layer.tar").write_bytes(b"lay")


def _lose(folder: Path) -> None:
    (folder / "layer.tar").unlink()


def _link(folder: Path) -> None:
    (folder / "layer.tar").rename(folder.parent / "elsewhere")
    (folder / "layer.tar").symlink_to(folder.parent / "elsewhere")


@pytest.mark.parametrize("damage", [_damage, _shorten, _lose, _link])
def test_what_is_damaged_does_not_appear(
    source: Node, target: Node, damage: Callable[[Path], None]
) -> None:
    """It is removed, so that it is sent again, and only it."""
    damage(target.take(source.send()))

    assert "layer.tar" in target.refused("arrive", 7, 1)

    assert not (target.root / "7" / "1").exists()
    assert "layer.tar" not in target.store("expect", 7, 1)["there"]
    assert "images/inventory.img" in target.store("expect", 7, 1)["there"]


def test_what_nobody_signed_is_refused(source: Node, target: Node) -> None:
    """Files beside those of the manifest, other digests, a manifest of another generation."""
    folder = target.take(source.send())
    (folder / "images" / "extra.img").touch()
    assert "nothing that was signed" in target.refused("arrive", 7, 1)
    (folder / "images" / "extra.img").unlink()

    target.take(source.send())
    body = json.dumps({"job": 7, "generation": 1, "files": {}})
    mac = hmac.new(b"x" * 32, body.encode(), hashlib.sha256).hexdigest()
    (folder / "digests.json").write_text(json.dumps({"body": body, "mac": mac}))
    assert "not signed" in target.refused("arrive", 7, 1)

    target.take(source.send())
    other = write_generation(source.root, 7, 2)
    shutil.copy(other / "manifest.json", folder)
    assert "belongs to something else" in target.refused("arrive", 7, 1)
    assert not (target.root / "7" / "1").exists()


def test_an_unmarked_root_hides_its_checkpoints(source: Node) -> None:
    """What is not mounted may hold anything: nothing is concluded from its absence."""
    (source.root / "stopgap-root").unlink()

    for words in (("look", 7, 1), ("ask", 7, 1, "evict", 0), ("expect", 7, 1), ("drop", 7, 0)):
        assert "is missing; is" in source.refused(*words)
    assert (source.root / "7" / "1" / "manifest.json").exists()

    (source.root / "stopgap-root").write_text("unit 0123\n")
    assert "another installation" in source.refused("mark")


def test_a_segment_is_kept_until_its_end_is_wanted(source: Node) -> None:
    """And one that has ended with a checkpoint stays so."""
    folder = source.root / "7"
    (folder / "cancel").touch()

    assert source.store("ask", 7, 3, "periodic", 5)["receipt"] is None
    assert "3 periodic\n" == (folder / "keep").read_text()
    assert not (folder / "cancel").exists()
    # The shim numbers the next one from here.
    assert (folder / "5").is_dir()

    (folder / "receipts").mkdir()
    receipt = folder / "receipts" / "3.checkpoint.json"
    receipt.write_text(json.dumps({"ok": False, "epoch": 3, "began": 1.0}))
    assert source.store("ask", 7, 3, "evict", 5)["receipt"] is None
    assert not (folder / "keep").exists()
    assert not receipt.exists()

    done = {"ok": True, "epoch": 3, "began": 1.0, "kind": "evict"}
    receipt.write_text(json.dumps(done))
    assert done == source.store("ask", 7, 3, "evict", 5)["receipt"]
    assert receipt.exists()


def test_what_is_dropped_is_gone(source: Node) -> None:
    """Older ones, what was never finished, what never arrived; at the end all of it."""
    for generation in (2, 3):
        write_generation(source.root, 7, generation)
    folder = source.root / "7"
    for unfinished in ("4", "arriving.3"):
        (folder / unfinished).mkdir()

    source.store("drop", 7, 2)
    assert ["2", "3"] == sorted(path.name for path in folder.iterdir())

    source.store("drop", 7, 0)
    source.store("drop", 7, 0)
    assert not folder.exists()
