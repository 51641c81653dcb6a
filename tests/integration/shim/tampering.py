"""What somebody who has the site's key could do to a generation."""

import hashlib
import hmac
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.integration.shim.kit import SITE_KEY, EngineSaidError, ShimNode

#: A change of what it is given, and words of the refusal.
Tampering: TypeAlias = tuple[Callable[[Path], object], str]


def sign_again(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a manifest's body and sign it."""
    document = json.loads((folder / "manifest.json").read_text())
    body = json.loads(document["body"])
    change(body)
    text = json.dumps(body)
    key = bytes.fromhex(SITE_KEY)
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    (folder / "manifest.json").write_text(json.dumps({"body": text, "mac": signature}))


def flip(path: Path) -> None:
    """Change one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def refusals(
    node: ShimNode,
    job: int,
    command: list[str],
    folder: Path,
    tampering: Mapping[str, Tampering],
    *,
    inside: str = "",
) -> Iterator[int]:
    """
    Change a copy of generation 1 in each way and see that no instruction of the job runs.

    What is changed is ``inside`` the generation's folder, which is as it was at the end.  Yields
    the epoch of each refused resume, before its container is removed.
    """
    kept = folder.with_name("kept")
    shutil.copytree(folder, kept)
    for epoch, (change, words) in enumerate(tampering.values(), start=2):
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
        change(folder / inside)
        container = node.create(job, epoch, command, generation=1)

        with pytest.raises(EngineSaidError) as refused:
            node.start(container)

        assert words in str(refused.value)
        assert b"" == node.logs(container)
        assert [] == node.processes(job, epoch)
        yield epoch
        node.remove(container)
    shutil.rmtree(folder)
    kept.rename(folder)
