"""The virtual machine's disk: its Debian with this checkout installed as an administrator would."""

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.testbed import images
from tests.testbed.paths import REPO
from tests.vm import initrd, root
from tests.vm.tools import VM_DIR, run

#: Where the checkout lies in the machine.
CHECKOUT = "/root/checkout"
_DISK_BYTES = 12 * 2**30
_FILES = Path(__file__).parent / "files"

#: The steps of docs/operations.md.  Mounts end with the mount namespace.
_INSTALL = """
lower=$1 work=$2
mkdir -p $work/upper $work/work $work/merged
mount -t overlay overlay -o lowerdir=$lower,upperdir=$work/upper,workdir=$work/work $work/merged
cp -a $work/add/. $work/merged/
chroot $work/merged sh -ec '
    cp -r /root/checkout /tmp/source
    /usr/local/lib/stopgap/bin/pip install -q --no-index --no-build-isolation --no-cache-dir \
        --disable-pip-version-check --root-user-action=ignore /tmp/source
    rm -r /tmp/source
    ln -s /usr/local/lib/stopgap/bin/stopgap /usr/local/bin/stopgap
    cp /root/checkout/systemd/stopgapd.service /etc/systemd/system/
    systemctl --quiet enable engine@n1 engine@n2
    mkdir -p /srv/data /srv/checkpoints
'
# Nothing is to be brought up to date at the first boot.
touch $work/merged/etc/.updated $work/merged/var/.updated
mkfs.ext4 -q -d $work/merged $work/disk
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What qemu boots."""

    kernel: Path
    initrd: Path
    disk: Path
    #: The private key that root's door opens to.
    key: Path


def ensure() -> Image:
    """
    Return the image of this checkout as it is now, making it first if need be.

    Raises:
        VmError: it could not be made.
        ImageError: an image for its engines could not be made.
    """
    lower, added = root.ensure(), _added()
    target = VM_DIR / f"image-{_fingerprint(lower, added)}"
    if not target.exists():
        for outdated in (*VM_DIR.glob("image-*"), *VM_DIR.glob("making-*")):
            shutil.rmtree(outdated)
        with tempfile.TemporaryDirectory(dir=VM_DIR, prefix="making-") as folder:
            _make(Path(folder), lower, added)
            (Path(folder) / "image").rename(target)
    return _at(target)


def _at(folder: Path) -> Image:
    return Image(
        kernel=folder / "kernel",
        initrd=folder / "initrd",
        disk=folder / "disk",
        key=folder / "key",
    )


def _added() -> dict[str, Path]:
    """Return what the disk holds beside Debian: place and source."""
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=REPO)
    sources = [REPO / os.fsdecode(name) for name in listed.split(b"\0") if name]
    added = {
        f"{CHECKOUT}/{source.relative_to(REPO)}": source for source in sources if source.is_file()
    }
    for source in _FILES.rglob("*"):
        if source.is_file():
            added[f"/{source.relative_to(_FILES)}"] = source
    for archive in images.ensure_all():
        added[f"/root/images/{archive.name}"] = archive
    return added


def _fingerprint(lower: Path, added: dict[str, Path]) -> str:
    known = hashlib.sha256(lower.name.encode())
    for recipe in (Path(__file__), Path(initrd.__file__)):
        known.update(recipe.read_bytes())
    for place, source in sorted(added.items()):
        mode = source.stat().st_mode & 0o777
        with source.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        known.update(f"{place} {mode:o} {digest}\n".encode())
    return known.hexdigest()[:16]


def _make(work: Path, lower: Path, added: dict[str, Path]) -> None:
    image = work / "image"
    image.mkdir()
    for place, source in added.items():
        target = work / "add" / place.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "stopgap-vm", "-f", image / "key")
    door = work / "add/root/.ssh"
    door.mkdir(mode=0o700)
    shutil.copy(image / "key.pub", door / "authorized_keys")
    with (work / "disk").open("wb") as disk:
        disk.truncate(_DISK_BYTES)
    private = ("nice", "-n", "15", "unshare", "--mount", "--propagation=private")
    run(*private, "sh", "-ec", _INSTALL, "sh", lower, work)
    (work / "disk").rename(image / "disk")
    kernel, modules = initrd.kernel_of(lower)
    initrd.copy_kernel(kernel, image / "kernel")
    initrd.write(image / "initrd", modules)
