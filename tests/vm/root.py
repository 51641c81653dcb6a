"""The virtual machine's Debian: a directory that debootstrap fills, kept for the next time."""

import hashlib
import shutil
import sys
import tempfile
from pathlib import Path

from tests.testbed import debian
from tests.vm.tools import VM_DIR, VmError, run

#: Its kernel is tested here; its CRIU is new enough for it.
SUITE = "trixie"
#: Ordinary users, by uid; their groups have the same number.
USERS = {"alice": 1000, "bob": 1001}

_HERE = Path(__file__).parent
_PACKAGES = _HERE / "packages"

#: With its machine-id missing systemd takes a boot for the first one, and presets all units.
_MACHINE_ID = "5a1f0c3e8d2b4f6790a1b2c3d4e5f607"
_UNWANTED = (
    "docker.service",
    "docker.socket",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    # What a machine without screen, keyboard, TPM and swap does not need costs a minute here.
    "getty@tty1.service",
    "serial-getty@ttyS0.service",
    "kmod-static-nodes.service",
    "modprobe@configfs.service",
    "modprobe@drm.service",
    "modprobe@efi_pstore.service",
    "modprobe@fuse.service",
    "systemd-binfmt.service",
    "systemd-pcrextend.socket",
    "systemd-pstore.service",
    "systemd-random-seed.service",
    "systemd-tpm2-setup-early.service",
    "systemd-tpm2-setup.service",
    "sys-kernel-config.mount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "sys-fs-fuse-connections.mount",
    "dev-hugepages.mount",
    "dev-mqueue.mount",
)
_WANTED = ("containerd.service", "ssh.service", "systemd-networkd.service")
_VENV = "/usr/local/lib/stopgap"


def ensure() -> Path:
    """
    Return the directory, making it first if need be.

    Raises:
        VmError: it could not be made.
    """
    target = VM_DIR / f"root-{_fingerprint()}"
    if target.exists():
        return target
    for outdated in VM_DIR.glob("root-*"):
        shutil.rmtree(outdated)
    print("making the virtual machine's Debian, some minutes", file=sys.stderr)
    VM_DIR.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=VM_DIR, prefix="making-") as folder:
        fresh = Path(folder) / "root"
        _debootstrap(fresh)
        _settle(fresh)
        fresh.rename(target)
    return target


def packages() -> list[str]:
    """Return the packages that the machine has beside the smallest system."""
    lines = _PACKAGES.read_text().splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _fingerprint() -> str:
    recipe = _PACKAGES.read_bytes() + Path(__file__).read_bytes()
    return hashlib.sha256(recipe).hexdigest()[:16]


def _debootstrap(root: Path) -> None:
    try:
        uri = debian.archive().uri
    except debian.NoSourceError as exc:
        raise VmError(f"{exc}: the virtual machine's Debian cannot be had") from exc
    # What debootstrap mounts ends with its mount namespace, even if it is killed.
    private = ("nice", "-n", "15", "unshare", "--mount", "--propagation=private")
    include = f"--include={','.join(packages())}"
    run(*private, "debootstrap", "--variant=minbase", include, SUITE, root, uri)
    run("chroot", root, "apt-get", "clean")


def _settle(root: Path) -> None:
    (root / "etc/machine-id").write_text(_MACHINE_ID + "\n")
    (root / "etc/hostname").write_text("stopgap-vm\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost stopgap-vm\n")
    (root / "etc/fstab").write_text("/dev/vda / ext4 rw,noatime 0 0\n")
    for name, uid in USERS.items():
        run("chroot", root, "useradd", "--create-home", "--shell=/bin/sh", f"--uid={uid}", name)
    run("chroot", root, "systemctl", "--quiet", "mask", *_UNWANTED)
    run("chroot", root, "systemctl", "--quiet", "enable", *_WANTED)
    # Debian's own Python libraries are of the versions that stopgap asks for.
    run("chroot", root, "python3", "-m", "venv", "--system-site-packages", _VENV)
