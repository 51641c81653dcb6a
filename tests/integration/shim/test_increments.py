"""Checkpoints that stand on the one before, where the kernel can tell what has changed."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from tests.integration.shim.jobs import COUNT, LARGE, assert_gap_free, saved, wait_progress
from tests.integration.shim.kit import ShimNode
from tests.integration.shim.tampering import Tampering, flip, refusals, sign_again
from tests.testbed import wait_until

pytestmark = pytest.mark.bed


def _tracks() -> bool:
    return any(" sd" in line for line in Path("/proc/self/smaps").read_text().splitlines())


def test_the_node_says_whether_its_kernel_can(one: ShimNode) -> None:
    """
    It is for people; what a checkpoint does is found out by it alone.
    """
    assert _tracks() is one.verb("fingerprint")["incremental"]


def test_the_second_checkpoint_writes_what_has_changed(
    one: ShimNode, other: ShimNode, job: int
) -> None:
    """
    Or all of it, on a kernel that cannot tell; what was deleted meanwhile is not missed.
    """
    container = one.run(job, 1, LARGE)
    wait_progress(one, container)
    one.keep(job, 1)
    one.checkpoint(container)
    one.checkpoint(container)
    one.end(job)
    one.checkpoint(container)
    one.wait(container)
    kept = [one.manifest(job, generation) for generation in (1, 2, 3)]

    expected = [(None, 0), (1, 1), (2, 2)] if _tracks() else [(None, 0)] * 3
    assert expected == [(body["parent"], body["depth"]) for body in kept]
    for body in kept:
        assert body["bytes"] == sum(facts["size"] for facts in body["files"].values())
        small = body["written_bytes"] < body["bytes"] / 10
        assert small is (body["parent"] is not None)
        assert _tracks() is body["tracked"]
    assert kept[2]["written_bytes"] == one.receipt(job, 1)["written_bytes"]
    for older in ("1", "2"):
        _delete(one.checkpoints / str(job) / older)
    resumed = other.run(job, 2, LARGE, generation=3)
    wait_progress(other, resumed)
    assert_gap_free(one.logs(container) + other.logs(resumed))


def _delete(folder: Path) -> None:
    """Delete a generation whose digests may come any moment."""

    def gone() -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    wait_until(gone, 20, f"{folder} to be gone")


def test_the_first_checkpoint_after_a_resume_is_full(
    one: ShimNode, other: ShimNode, job: int
) -> None:
    """
    What the kernel knew of the job has ended with its processes.
    """
    saved(one, job)
    resumed = other.run(job, 2, COUNT, generation=1)
    wait_progress(other, resumed)
    other.checkpoint(resumed)

    body = other.manifest(job, 2)
    assert (None, 0) == (body["parent"], body["depth"])
    assert body["bytes"] == body["written_bytes"]


def _stand(folder: Path) -> None:
    """Let a full generation look like one that stands on another, and sign that it is so."""
    below = folder / "images" / "parent"
    below.mkdir()
    added = {}
    for name in ("inventory.img", "pagemap-1.img", "pages-1.img"):
        os.link(folder / "images" / name, below / name)
        content = (below / name).read_bytes()
        digest = None if name.startswith("pages-") else hashlib.sha256(content).hexdigest()
        added[f"images/parent/{name}"] = {"size": len(content), "sha256": digest}
    sign_again(folder, lambda body: body["files"].update(added))


def _link(below: Path) -> None:
    below.rename(below.parent.parent / "away")
    below.symlink_to("../away")


TAMPERING: dict[str, Tampering] = {
    "cut": (lambda f: (f / "pages-1.img").write_bytes(b"short"), "5 bytes instead"),
    "pagemap": (lambda f: flip(f / "pagemap-1.img"), "not the file that was signed"),
    "pages": (lambda f: flip(f / "pages-1.img"), "not the file that was signed"),
    "missing": (lambda f: (f / "pages-1.img").unlink(), "pages-1.img"),
    "added": (lambda f: (f / "core-1.img").touch(), "not signed"),
    "deeper": (lambda f: (f / "parent").mkdir(), "not signed"),
    "link": (_link, "not signed"),
}


def test_what_a_generation_stands_on_is_checked_as_itself(
    one: ShimNode, other: ShimNode, job: int
) -> None:
    """
    Whatever was changed is found before an instruction runs; untouched it goes on.
    """
    folder = saved(one, job)
    wait_until((folder / "digests.json").exists, 20, "the digests")
    _stand(folder)
    digests = json.loads((folder / "digests.json").read_text())
    pages = json.loads(digests["body"])["files"]["images/pages-1.img"]
    facts = {"size": (folder / "images/pages-1.img").stat().st_size, "sha256": pages}
    sign_again(folder, lambda body: body["files"].update({"images/parent/pages-1.img": facts}))
    tried = list(refusals(other, job, COUNT, folder, TAMPERING, inside="images/parent"))
    assert len(TAMPERING) == len(tried)
    resumed = other.run(job, 50, COUNT, generation=1)
    wait_progress(other, resumed)
