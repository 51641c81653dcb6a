"""Generations and receipts as the shim leaves them, for tests of their readers."""

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

from migration.stores.shared import SharedStore

INSTANCE = "unit"
SITE_KEY = b"s" * 32
CONTENT = {"images/inventory.img": b"inventory", "layer.tar": b"layer"}


def store_in(root: Path) -> SharedStore:
    """Return a store with the keys that are used here."""
    root.mkdir(exist_ok=True)
    store = SharedStore(root, INSTANCE, SITE_KEY)
    store.claim(root / "memory")
    return store


def write_generation(root: Path, job: int, generation: int, /, **changed: Any) -> Path:
    """Write a valid generation; keyword arguments change its manifest before it is signed."""
    folder = root / str(job) / str(generation)
    (folder / "images").mkdir(parents=True)
    for name, content in CONTENT.items():
        (folder / name).write_bytes(content)
    body = {
        "format": 1,
        "instance": INSTANCE,
        "job": job,
        "epoch": 1,
        "generation": generation,
        "node": "n1",
        "time": 1764579231.5,
        "uid": 1000,
        "seconds": 0.25,
        "image": None,
        "criu_options": ["file-locks"],
        "fingerprint": {"kernel": "6.18", "cgroup": 1},
        "files": {n: {"size": len(c), "sha256": None} for n, c in CONTENT.items()},
        "layer_bytes": 5,
        "bytes": 14,
    } | changed
    text = json.dumps(body)
    mac = hmac.new(SITE_KEY, text.encode(), hashlib.sha256).hexdigest()
    (folder / "manifest.json").write_text(json.dumps({"body": text, "mac": mac}))
    return folder


def write_receipt(root: Path, job: int, epoch: int, /, **said: Any) -> None:
    """Write a receipt, whole or not at all."""
    folder = root / str(job) / "receipts"
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"epoch": epoch, "began": 1764579231.0} | said)
    part = folder / ".part"
    part.write_text(text)
    part.rename(folder / f"{epoch}.checkpoint.json")
