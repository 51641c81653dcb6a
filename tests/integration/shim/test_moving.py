"""A job between two nodes keeps everything."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from tests.integration.shim.jobs import STEADY, assert_gap_free, wait_progress
from tests.integration.shim.kit import ShimNode
from tests.testbed import wait_until

pytestmark = pytest.mark.bed


def test_twenty_rounds_are_gap_free(pair: tuple[ShimNode, ShimNode], job: int) -> None:
    """
    A job between two nodes keeps its log, files, lock, threads and connections.
    """
    data = pair[0].bed.data / str(job)
    data.mkdir()
    command = ["python3", "-c", STEADY]
    out = err = b""
    generation = None
    for epoch in range(1, 22):
        node = pair[epoch % 2]
        container = node.run(job, epoch, command, generation=generation, binds=[f"{data}:/data"])
        wait_progress(node, container, 5)
        node.checkpoint(container)
        assert 137 == node.wait(container)
        assert [] == node.processes(job, epoch)
        receipt = node.receipt(job, epoch)
        assert receipt["ok"]
        generation = receipt["generation"]
        out, err = out + node.logs(container), err + node.logs(container, "stderr")
        node.remove(container)

    assert_gap_free(out)
    assert out == err == (data / "count").read_bytes()
    shutil.rmtree(data)


def test_writable_layer_arrives_whole(one: ShimNode, other: ShimNode, job: int) -> None:
    """
    Deletions, opaque directories, modes, owners, attributes, links and holes move along.
    """
    container = one.run(job, 1, ["python3", "-c", _LAYER], host={"CapDrop": []})
    wait_until(lambda: one.logs(container), 20, "the layer")
    before = _tree(one, job, 1)
    one.checkpoint(container)
    one.wait(container)
    resumed = other.run(job, 2, ["python3", "-c", _LAYER], generation=1, host={"CapDrop": []})
    after = _tree(other, job, 2)
    other.remove(resumed)

    assert before == after
    assert "/etc/passwd" not in after


_LAYER = r"""
import os, shutil, time
os.unlink("/etc/passwd")
shutil.rmtree("/usr/lib/python3") if os.path.isdir("/usr/lib/python3") else None
shutil.rmtree("/var"); os.mkdir("/var"); os.mkdir("/var/opaque", 0o2711)
os.mkdir("/made"); os.mkdir("/made/empty", 0o1700)
open("/made/plain", "w").write("text"); os.chmod("/made/plain", 0o4755)
os.chown("/made/plain", 1234, 4321); os.chmod("/made/plain", 0o4755)
os.link("/made/plain", "/made/hard"); os.symlink("/nowhere/../x", "/made/soft")
os.lchown("/made/soft", 77, 88)
os.mkfifo("/made/fifo", 0o620)
os.setxattr("/made/plain", "user.note", b"\x00\xff=\n binary")
cap = b"\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
open("/made/capable", "w").close(); os.setxattr("/made/capable", "security.capability", cap)
with open("/made/sparse", "wb") as f:
    f.seek(3 << 20); f.write(b"middle"); f.truncate(20 << 20)
for name in (b"/made/new\nline", b"/made/\xff\xfe", "/made/\u00fc".encode(), b"/made/ blank ",
             b"/made/" + b"n" * 255):
    open(name, "wb").write(name)
os.utime("/made/plain", ns=(1234567890123456789, 1234567890123456789))
os.chmod("/usr/share", 0o711)
os.unlink("/etc/group") ; os.mkdir("/etc/group"); open("/etc/group/file", "w").close()
shutil.rmtree("/home") if os.path.isdir("/home") else None
open("/home", "w").write("a file now")
print("done", flush=True)
while True: time.sleep(1)
"""


def _tree(node: ShimNode, job: int, epoch: int) -> dict[str, object]:
    """Describe the root file system that a job sees, without what is mounted there."""
    root = f"/proc/{node.processes(job, epoch)[0]}/root"
    device = os.lstat(root).st_dev
    inodes: dict[int, str] = {}
    found: dict[str, object] = {}
    for folder, folders, files in os.walk(os.fsencode(root)):
        folders[:] = [f for f in folders if os.lstat(folder + b"/" + f).st_dev == device]
        for name in sorted(folders + files):
            path = folder + b"/" + name
            facts = os.lstat(path)
            shown = path[len(root) :].decode("utf-8", "backslashreplace")
            if facts.st_dev != device or shown in ("/etc/hosts", "/etc/resolv.conf"):
                continue
            content: object = None
            if stat.S_ISLNK(facts.st_mode):
                content = Path(os.fsdecode(path)).readlink()
            elif stat.S_ISREG(facts.st_mode):
                has_holes = facts.st_blocks < facts.st_size // 512 // 2
                content = (facts.st_size, has_holes, Path(os.fsdecode(path)).read_bytes())
            names = os.listxattr(path, follow_symlinks=False)
            found[shown] = (
                oct(facts.st_mode),
                facts.st_uid,
                facts.st_gid,
                facts.st_mtime_ns if name in (b"plain", b"sparse") else None,
                content,
                {n: os.getxattr(path, n, follow_symlinks=False) for n in names},
                inodes.setdefault(facts.st_ino, shown) if facts.st_nlink > 1 else None,
            )
    return found
