"""The little that a kernel needs before it can read its disk: busybox and some modules."""

import gzip
import lzma
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from tests.vm.tools import VmError, find

_MODULES = ("virtio_pci", "virtio_blk", "ext4", "virtio_net", "virtio_rng")

_INIT = """#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
for module in /modules/*; do /bin/busybox insmod $module; done
until [ -b /dev/vda ]; do /bin/busybox usleep 10000; done
/bin/busybox mount -t ext4 -o rw,noatime /dev/vda /root
/bin/busybox mount -o move /dev /root/dev
exec /bin/busybox switch_root /root /sbin/init
"""


def write(target: Path, modules: Path) -> None:
    """
    Write the initrd for the kernel whose modules these are.

    Raises:
        VmError: a module is not there.
    """
    busybox = find("busybox")
    if busybox is None:
        raise VmError("no busybox here")
    files: dict[str, tuple[int, bytes]] = dict.fromkeys(
        ("bin", "dev", "modules", "root"), (stat.S_IFDIR | 0o755, b"")
    )
    files["init"] = (stat.S_IFREG | 0o755, _INIT.encode())
    files["bin/busybox"] = (stat.S_IFREG | 0o755, Path(busybox).read_bytes())
    for number, path in enumerate(_in_order(modules)):
        name = f"modules/{number:02}-{path.name.partition('.')[0]}.ko"
        files[name] = (stat.S_IFREG | 0o644, _plain(path))
    with gzip.open(target, "wb", compresslevel=1) as sink:
        for number, (name, (mode, content)) in enumerate(files.items(), start=1):
            sink.write(_entry(number, name, mode, content))
        sink.write(_entry(0, "TRAILER!!!", 0, b""))


def _in_order(modules: Path) -> list[Path]:
    """Return the modules and those that they need, each after what it needs."""
    needs = {}
    for line in (modules / "modules.dep").read_text().splitlines():
        path, _, needed = line.partition(":")
        needs[path] = needed.split()
    named = {Path(path).name.partition(".")[0].replace("-", "_"): path for path in needs}
    built_in = (modules / "modules.builtin").read_text().replace("-", "_")
    found: dict[str, None] = {}

    def add(path: str) -> None:
        for needed in reversed(needs[path]):
            add(needed)
        found.setdefault(path)

    for name in _MODULES:
        if name in named:
            add(named[name])
        elif f"/{name}.ko" not in built_in:
            raise VmError(f"the kernel of {modules.name} has no {name}")
    # ext4 asks for it by name, modules.dep does not say so.
    for soft in ("crc32c_generic", "crc32c_intel"):
        if soft in named:
            add(named[soft])
    return [modules / path for path in found]


def _plain(path: Path) -> bytes:
    packed = path.read_bytes()
    return lzma.decompress(packed) if path.suffix == ".xz" else packed


def _entry(number: int, name: str, mode: int, content: bytes) -> bytes:
    """Return one file of a "newc" cpio archive, as the kernel's own documentation has it."""
    fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
    head = b"070701" + b"".join(f"{field:08x}".encode() for field in fields)
    return b"".join(_padded([head + name.encode() + b"\0", content]))


def _padded(parts: list[bytes]) -> Iterator[bytes]:
    for part in parts:
        yield part + b"\0" * (-len(part) % 4)


def kernel_of(root: Path) -> tuple[Path, Path]:
    """
    Return the kernel of a Debian and the directory of its modules.

    Raises:
        VmError: it has none.
    """
    kernels = sorted((root / "boot").glob("vmlinuz-*"))
    if not kernels:
        raise VmError(f"{root} has no kernel; remove it and try again")
    version = kernels[-1].name.removeprefix("vmlinuz-")
    return kernels[-1], root / "usr/lib/modules" / version


def copy_kernel(kernel: Path, target: Path) -> None:
    """Copy a kernel to where qemu is to read it."""
    shutil.copyfile(kernel, target)
