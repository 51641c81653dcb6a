"""What an engine holds when a bed starts: the images, loaded once and linked from then on.

Loading an image costs seconds for each engine.  An engine that has loaded all of them
and was stopped leaves two folders that any engine of the same version can start with.
Containers never write into them: what they change goes into a layer of their own.
"""

import hashlib
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.testbed import engines, images, layout, teardown
from tests.testbed.layout import Layout
from tests.testbed.parts import Parts
from tests.testbed.paths import STOCK_DIR
from tests.testbed.waiting import alone

_FOLDERS = ("image", "overlay2")


class StockError(Exception):
    """The stock could not be copied."""


def ensure() -> Path:
    """
    Return the folder with the stock, making images and stock first if need be.

    Raises:
        ImageError: an image could not be made.
        EngineError: an image could not be loaded.
        PartError: the engine that was to load them did not start.
    """
    with alone(STOCK_DIR):
        archives = images.ensure_all()
        target = STOCK_DIR / _fingerprint(archives)
        if not target.exists():
            for outdated in (entry for entry in STOCK_DIR.iterdir() if entry.is_dir()):
                shutil.rmtree(outdated)
            _make(target, archives)
        return target


def furnish(bed: Layout, node: str, stock: Path) -> None:
    """
    Give an engine that has not started yet everything in the stock.

    Raises:
        StockError: the folders could not be copied.
    """
    home = bed.node(node) / "docker"
    home.mkdir(mode=0o710)
    folders = [str(stock / folder) for folder in _FOLDERS]
    if subprocess.run(["cp", "-al", *folders, home], capture_output=True, check=False).returncode:
        # Another file system: no links.
        answer = subprocess.run(
            ["cp", "-a", *folders, home], capture_output=True, text=True, check=False
        )
        if answer.returncode:
            raise StockError(f"{node}: {answer.stderr.strip()}")


def _make(target: Path, archives: Sequence[Path]) -> None:
    bed = layout.reserve(nodes=1)
    (node,) = bed.nodes
    parts = Parts(bed)
    try:
        bed.logs.mkdir()
        engines.configure(bed, node)
        parts.launch("dockerd", node)
        parts.wait("dockerd", node)
        for archive in archives:
            engines.load(bed, node, archive)
        parts.kill("dockerd", node, number=signal.SIGTERM)
        with tempfile.TemporaryDirectory(dir=STOCK_DIR) as folder:
            fresh = Path(folder) / "stock"
            fresh.mkdir()
            for part in _FOLDERS:
                shutil.copytree(bed.node(node) / "docker" / part, fresh / part, symlinks=True)
            fresh.rename(target)
    finally:
        teardown.tear_down(bed)
        parts.release()
        layout.note_of(bed).unlink()


def _fingerprint(archives: Sequence[Path]) -> str:
    version = subprocess.run(["dockerd", "--version"], capture_output=True, check=True).stdout
    known = hashlib.sha256(version)
    for archive in archives:
        state = archive.stat()
        known.update(f"{archive.name} {state.st_size} {state.st_mtime_ns}".encode())
    return known.hexdigest()[:16]
