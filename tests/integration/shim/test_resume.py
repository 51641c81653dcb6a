"""Generations that must not be resumed."""

import hashlib
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.shim.jobs import COUNT, saved, wait_progress
from tests.integration.shim.kit import EngineSaidError, ShimNode
from tests.integration.shim.tampering import Tampering, flip, refusals, sign_again
from tests.testbed import wait_until

pytestmark = pytest.mark.bed


def _cut(folder: Path, name: str) -> None:
    """Take the last third off a file, and sign that it is so."""
    content = (folder / name).read_bytes()
    content = content[: len(content) * 2 // 3]
    (folder / name).write_bytes(content)
    facts = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    sign_again(folder, lambda body: body["files"].update({name: facts}))


def _change_manifest(folder: Path) -> None:
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace(r"\"uid\": 0", r"\"uid\": 1"))


TAMPERING: dict[str, Tampering] = {
    "image": (lambda f: flip(f / "images" / "core-1.img"), "not the file that was signed"),
    "layer": (lambda f: flip(f / "layer.tar"), "not the file that was signed"),
    "descriptors": (lambda f: (f / "images" / "descriptors.json").unlink(), "descriptors.json"),
    "added": (lambda f: (f / "images" / "new.img").touch(), "not signed"),
    "manifest": (_change_manifest, "not signed with this site's key"),
    "no-manifest": (lambda f: (f / "manifest.json").unlink(), "manifest.json"),
    "cut-pages": (lambda f: os.truncate(f / "images" / "pages-1.img", 4096), "4096 bytes instead"),
    "other-uid": (lambda f: sign_again(f, lambda b: b.update(uid=5)), "belongs to uid 5"),
    "later-epoch": (lambda f: sign_again(f, lambda b: b.update(epoch=99)), "epoch 99"),
    "other-job": (lambda f: sign_again(f, lambda b: b.update(job=1)), "something else"),
    "newer-criu": (
        lambda f: sign_again(f, lambda b: b["fingerprint"].update(criu="99.1")),
        "the images are of CRIU 99.1",
    ),
    "other-cpu": (
        lambda f: sign_again(f, lambda b: b["fingerprint"].update(cpu="fpu strange")),
        "its processor lacks strange",
    ),
}


def test_tampered_generation_is_refused(one: ShimNode, other: ShimNode, job: int) -> None:
    """
    Whatever was changed is found before an instruction runs, and named.
    """
    folder = saved(one, job)
    for epoch in refusals(other, job, COUNT, folder, TAMPERING):
        assert not other.receipt(job, epoch, "resume")["ok"]


def test_cut_pages_end_in_seconds(one: ShimNode, other: ShimNode, job: int) -> None:
    """
    CRIU spins on pages that end early and logs without end; the bounds stop it.
    """
    folder = saved(one, job)
    os.truncate(folder / "images" / "pages-1.img", 4096)
    sign_again(folder, lambda b: b["files"]["images/pages-1.img"].update(size=4096))
    other.configure(log_bytes=1_000_000, resume_seconds=5)
    container = other.create(job, 2, COUNT, generation=1)
    began = time.monotonic()

    with pytest.raises(EngineSaidError, match=r"log grew beyond \d+ bytes"):
        other.start(container)

    assert time.monotonic() - began < 15
    assert [] == other.processes(job, 2)


def test_cut_images_end_in_seconds(one: ShimNode, other: ShimNode, job: int) -> None:
    """
    Whatever image ends early, signed or not: an error of CRIU's, and nothing of the job runs.
    """
    folder = saved(one, job)
    kept = folder.with_name("kept")
    shutil.copytree(folder, kept)
    names = ("inventory", "pstree", "files", "mm-1", "core-1")
    images = [path for path in sorted((kept / "images").glob("*.img")) if path.stem in names]
    assert len(images) == len(names)
    for epoch, image in enumerate(images, start=2):
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
        _cut(folder, f"images/{image.name}")
        container = other.create(job, epoch, COUNT, generation=1)
        began = time.monotonic()

        with pytest.raises(EngineSaidError, match="was not resumed"):
            other.start(container)

        assert time.monotonic() - began < 20, image.name
        assert b"" == other.logs(container)
        assert [] == other.processes(job, epoch)
        other.remove(container)


def test_restored_with_more_rights_is_killed(one: ShimNode, other: ShimNode, job: int) -> None:
    """
    A job cannot come back with capabilities that its container does not give.
    """
    container = one.run(job, 1, COUNT, host={"CapDrop": []})
    wait_progress(one, container)
    one.checkpoint(container)
    one.wait(container)
    resumed = other.create(job, 2, COUNT, generation=1)

    with pytest.raises(EngineSaidError, match="was restored with Cap"):
        other.start(resumed)

    assert [] == other.processes(job, 2)
    assert b"" == other.logs(resumed)


def test_restored_job_waits_for_start(one: ShimNode, other: ShimNode, job: int) -> None:
    """
    A prolog between create and start finds the job stopped, and it never runs.
    """
    saved(one, job)
    container = other.create(job, 2, COUNT, generation=1)
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(other.start, container)
        wait_until(lambda: other.processes(job, 2), 20, "the restore", every=0.001)
        prologue = other.prolog(seconds=60)
        with pytest.raises(EngineSaidError, match="a prolog has claimed"):
            starting.result()

    assert 0 == prologue.returncode
    assert [] == other.processes(job, 2)
    assert b"" == other.logs(container)
    assert ["1"] == other.generations(job)
