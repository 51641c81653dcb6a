"""Images that lie compressed: the same promises, and nothing left on the node."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.shim.jobs import COUNTING, LARGE, assert_gap_free, saved, wait_progress
from tests.integration.shim.killing import kill_when
from tests.integration.shim.kit import EngineSaidError, ShimNode
from tests.integration.shim.tampering import Tampering, flip, refusals, sign_again
from tests.testbed import wait_until

pytestmark = pytest.mark.bed

#: A twentieth of it is enough once it is compressed.
DULL = ["python3", "-c", "keep = b'stopgap ' * (16 << 20)\n" + COUNTING]


@pytest.fixture
def packing(one: ShimNode, other: ShimNode, tmp_path: Path) -> Iterator[Callable[[], list[Path]]]:
    """Both nodes compress; returns what lies in their scratch directories."""
    if shutil.which("zstd") is None:
        pytest.skip("zstd is not installed")
    for node in (one, other):
        node.configure(compress="zstd", scratch=_scratch(tmp_path, node))

    def left() -> list[Path]:
        return list(tmp_path.glob("scratch-*/*/*"))

    yield left
    assert [] == left()


def _scratch(tmp_path: Path, node: ShimNode) -> Path:
    return tmp_path / f"scratch-{node.name}"


@pytest.mark.usefixtures("packing")
def test_a_compressed_job_moves(one: ShimNode, other: ShimNode, job: int) -> None:
    """
    Kept, evicted, resumed; the manifest says of each file what it is.
    """
    container = one.run(job, 1, DULL)
    wait_progress(one, container)
    one.keep(job, 1)
    one.checkpoint(container)
    wait_progress(one, container)
    one.end(job)
    one.checkpoint(container)
    one.wait(container)
    body = one.manifest(job, 2)
    packed = {name for name, facts in body["files"].items() if facts.get("codec") == "zstd"}

    assert {"images/pages-1.img.zst"} <= packed
    assert not any(name.endswith(".img") and "pages-" in name for name in body["files"])
    assert body["bytes"] < body["plain_bytes"] / 20
    assert 128 << 20 < body["plain_bytes"]
    assert body["plain_bytes"] == one.receipt(job, 1)["plain_bytes"]
    resumed = other.run(job, 2, DULL, generation=2)
    wait_progress(other, resumed)
    assert_gap_free(one.logs(container) + other.logs(resumed))


def _swell(folder: Path) -> None:
    """Put something larger in the place of the pages, and sign its size."""
    path = folder / "images/pages-1.img.zst"
    size = (folder / "layer.tar").stat().st_size
    argv = ["zstd", "-q", "-f", "-o", str(path)]
    subprocess.run(argv, input=bytes(1 << 30), check=True)
    facts = {"size": path.stat().st_size, "sha256": None, "codec": "zstd", "plain": 4096 + size}
    sign_again(folder, lambda body: body["files"].update({"images/pages-1.img.zst": facts}))
    (folder / "digests.json").unlink()


TAMPERING: dict[str, Tampering] = {
    "pages": (lambda f: flip(f / "images/pages-1.img.zst"), "not the file that was signed"),
    "cut": (lambda f: os.truncate(f / "images/pages-1.img.zst", 4096), "4096 bytes instead"),
    "plain": (lambda f: (f / "images/pages-1.img").touch(), "not signed"),
    "larger": (_swell, "holds more than"),
}


def test_compressed_images_are_checked(
    one: ShimNode, other: ShimNode, job: int, packing: Callable[[], list[Path]]
) -> None:
    """
    Before an instruction runs, and before they fill the node.
    """
    folder = saved(one, job, DULL)
    wait_until((folder / "digests.json").exists, 20, "the digests")
    for _ in refusals(other, job, DULL, folder, TAMPERING):
        assert [] == packing()


@pytest.mark.usefixtures("packing")
def test_a_node_without_zstd_writes_plainly(
    one: ShimNode, other: ShimNode, job: int, tmp_path: Path
) -> None:
    """
    It says so, and in the manifest too; what others have compressed it refuses.
    """
    programs = tmp_path / "bin"
    programs.mkdir()
    for place in reversed(one.bed.layout.node_path.split(":")):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            if "zstd" not in program.name:
                (programs / program.name).unlink(missing_ok=True)
                (programs / program.name).symlink_to(program)
    there = other.verb("fingerprint")["zstd"]
    one.configure(compress="zstd", scratch=_scratch(tmp_path, one), path=programs)

    assert "" == one.verb("fingerprint")["zstd"]
    assert there[0].isdigit()
    saved(one, job, DULL)
    body = one.manifest(job, 1)
    assert ("none", body["bytes"]) == (body["compress"], body["plain_bytes"])
    container = other.run(job, 2, DULL, generation=1)
    wait_progress(other, container)
    other.checkpoint(container)
    other.wait(container)
    assert "zstd" == other.manifest(job, 2)["compress"]
    container = one.create(job, 3, DULL, generation=2)
    with pytest.raises(EngineSaidError, match="has no zstd"):
        one.start(container)


@pytest.fixture
def narrow(one: ShimNode, tmp_path: Path) -> Iterator[Path]:
    """A scratch directory of the first node with room for little."""
    place = _scratch(tmp_path, one)
    place.mkdir()
    options = "size=16m,mode=0700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_scratch_is_a_full_disk(
    packing: Callable[[], list[Path]], narrow: Path, one: ShimNode, other: ShimNode, job: int
) -> None:
    """
    The job goes on, nothing is left behind, and the reason says which of the two it is.
    """
    container = one.run(job, 1, LARGE)
    wait_progress(one, container)

    with pytest.raises(EngineSaidError, match="the scratch directory"):
        one.checkpoint(container)

    assert [] == packing()
    assert [] == one.generations(job)
    wait_progress(one, container)
    one.configure()
    one.checkpoint(container)
    one.wait(container)
    one.configure(compress="zstd", scratch=narrow)
    resumed = one.run(job, 2, LARGE, generation=1)
    wait_progress(one, resumed)
    other.configure()


def test_images_that_do_not_fit_are_not_resumed(
    packing: Callable[[], list[Path]], narrow: Path, one: ShimNode, other: ShimNode, job: int
) -> None:
    """
    It is the node's fault, which has too little room, and another one does it.
    """
    logs: list[bytes] = []
    saved(other, job, LARGE, logs)
    container = one.create(job, 2, LARGE, generation=1)
    with pytest.raises(EngineSaidError, match="No space left"):
        one.start(container)

    assert [] == packing()
    assert [] == list(narrow.glob("*/*"))
    resumed = other.run(job, 3, LARGE, generation=1)
    wait_progress(other, resumed)
    assert_gap_free(logs[0] + other.logs(resumed))


@pytest.mark.parametrize("moment", ["dumping", "packing"])
def test_what_a_killed_shim_leaves_is_cleared_away(
    packing: Callable[[], list[Path]],
    pair: tuple[ShimNode, ShimNode],
    job: int,
    tmp_path: Path,
    moment: str,
) -> None:
    """
    By the next call, or the next look at the node.
    """
    one, other = pair
    container = one.run(job, 1, LARGE)
    wait_progress(one, container)
    generation = one.checkpoints / str(job) / "1"
    pattern = {
        "dumping": (_scratch(tmp_path, one), "*/*/pages-1.img"),
        "packing": (generation, "images/pages-1.img.zst"),
    }[moment]
    with ThreadPoolExecutor(1) as pool:
        saving = pool.submit(one.checkpoint, container)
        kill_when(one, "checkpoint", container, lambda: list(pattern[0].glob(pattern[1])))
        with suppress(EngineSaidError):
            saving.result()
    one.verb("thaw", job, 1)
    wait_progress(one, container)

    one.verb("fingerprint")

    assert [] == packing()
    one.checkpoint(container)
    one.wait(container)
    last = max(int(name) for name in one.generations(job))
    resumed = other.run(job, 2, LARGE, generation=last)
    wait_progress(other, resumed)
    assert_gap_free(one.logs(container) + other.logs(resumed))
