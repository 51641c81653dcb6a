"""Writable layers made up by somebody with the site's key, and generations of others."""

import hashlib
import io
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.shim.jobs import COUNT, saved
from tests.integration.shim.kit import EngineSaidError, ShimNode
from tests.integration.shim.tampering import sign_again

pytestmark = pytest.mark.bed


def _member(name: str, kind: bytes = tarfile.REGTYPE, **more: object) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    for field, value in more.items():
        setattr(member, field, value)
    return member


LAYERS: dict[str, tuple[Callable[[Path], list[tarfile.TarInfo]], str]] = {
    "upwards": (lambda _: [_member("../../up", size=4)], "leads outside"),
    "device": (
        lambda _: [_member("./disk", tarfile.BLKTYPE, devmajor=8, devminor=0)],
        "has a device node",
    ),
    "through a link": (
        lambda out: [
            _member("./way", tarfile.SYMTYPE, linkname=str(out)),
            _member("./way/up", size=4),
        ],
        "cannot be restored",
    ),
    "hard link": (
        lambda out: [_member("./hard", tarfile.LNKTYPE, linkname=f"{out}/there")],
        "cannot be restored",
    ),
}


def test_no_layer_leads_out(one: ShimNode, other: ShimNode, job: int) -> None:
    """
    Nothing outside of the new root is reached, and nothing of the job runs.
    """
    folder = saved(one, job)
    outside = one.bed.data / f"outside-{job}"
    outside.mkdir()
    (outside / "there").write_text("kept")
    for epoch, (members, words) in enumerate(LAYERS.values(), start=2):
        _put_layer(folder, members(outside))
        container = other.create(job, epoch, COUNT, generation=1)

        with pytest.raises(EngineSaidError, match=words):
            other.start(container)

        assert ["there"] == [path.name for path in outside.iterdir()]
        assert b"" == other.logs(container)
        assert [] == other.processes(job, epoch)
        other.remove(container)
    shutil.rmtree(outside)


def _put_layer(folder: Path, members: list[tarfile.TarInfo]) -> None:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"evil") if member.isreg() else None)
    (folder / "layer.tar").write_bytes(sink.getvalue())
    digest = hashlib.sha256(sink.getvalue()).hexdigest()
    facts = {"size": len(sink.getvalue()), "sha256": digest}
    sign_again(folder, lambda body: body["files"].update({"layer.tar": facts}))


def test_another_jobs_generation_is_refused(one: ShimNode, other: ShimNode, job: int) -> None:
    """
    A whole one, in the wrong place, and its images under the right manifest.
    """
    folder = saved(one, job)
    foreign = folder.parents[1] / str(job + 5000)
    shutil.copytree(folder.parent, foreign)
    container = other.create(job + 5000, 2, COUNT, generation=1)
    with pytest.raises(EngineSaidError, match="belongs to something else"):
        other.start(container)
    other.remove(container)
    shutil.rmtree(foreign)

    twin = saved(one, job + 6000)
    shutil.copy(twin / "images" / "core-1.img", folder / "images" / "core-1.img")
    container = other.create(job, 2, COUNT, generation=1)
    with pytest.raises(EngineSaidError, match=r"instead of|not the file that was signed"):
        other.start(container)

    assert [] == other.processes(job, 2)
    shutil.rmtree(twin.parent)
