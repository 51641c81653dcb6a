"""Files of a job outside of its container, after a crash."""

import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def roots(tmp_path: Path) -> Iterator[dict[str, int]]:
    root = os.open(tmp_path, os.O_PATH)
    yield {"/data": root}
    os.close(root)


def _judged(
    shim: ModuleType, roots: dict[str, int], tmp_path: Path, *cut: int, **manifest: Any
) -> Any:
    facts = {"mounts": {"/data": str(tmp_path)}, "ignored": [], "uid": os.getuid()}
    return shim.judge(facts, roots, {"quiet": 9e9, **manifest}, set(cut))


def test_an_interrupted_cut_is_known_again(
    shim: ModuleType, roots: dict[str, int], tmp_path: Path
) -> None:
    """
    Killed after the cut and before it gave the file its old time, the shim finds its own work.
    """
    file = tmp_path / "file"
    file.write_bytes(b"before")
    entry = shim.note_file(roots["/data"], "/data", "file")
    with file.open("ab") as appended:
        appended.write(b" and after")
    assert ([(0, entry)], []) == _judged(shim, roots, tmp_path, outputs=[entry])

    with (tmp_path / "tail").open("wb") as tail:
        shim.cut(roots, entry, tail.fileno())
    assert ([], []) == _judged(shim, roots, tmp_path, outputs=[entry])
    assert (b"before", b" and after") == (file.read_bytes(), (tmp_path / "tail").read_bytes())

    os.utime(file)
    assert ([(0, entry)], []) == _judged(shim, roots, tmp_path, 0, outputs=[entry])
    said = ["/data/file was overwritten"]
    assert ([], said) == _judged(shim, roots, tmp_path, outputs=[entry])


def test_no_link_is_followed(shim: ModuleType, roots: dict[str, int], tmp_path: Path) -> None:
    """
    What the submitter has put in the place of a file, or of its folder, leads nowhere.
    """
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"x")
    (tmp_path / "file").write_bytes(b"x")
    entries = [shim.note_file(roots["/data"], "/data", n) for n in ("file", "folder/file")]
    (tmp_path / "secret").write_bytes(b"xyz")
    (tmp_path / "file").unlink()
    (tmp_path / "file").symlink_to("secret")
    (tmp_path / "folder").rename(tmp_path / "real")
    (tmp_path / "folder").symlink_to("real")

    longer, changed = _judged(shim, roots, tmp_path, outputs=entries)

    assert [] == longer
    assert ["/data/file cannot be opened", "/data/folder/file cannot be opened"] == [
        line.partition(":")[0] for line in changed
    ]


def test_files_are_looked_at_as_the_submitter(shim: ModuleType, tmp_path: Path) -> None:
    """
    He gets no further than he would himself.
    """
    if os.getuid():
        pytest.skip("needs root")
    tmp_path.chmod(0o755)
    (tmp_path / "secret").write_bytes(b"x")
    (tmp_path / "secret").chmod(0o600)
    facts = {"mounts": {"/data": str(tmp_path)}, "uid": 4321, "gid": 4321, "groups": [4322]}

    noted = shim.as_submitter(
        facts, shim.Watch(10), lambda roots: shim.note_file(roots["/data"], "/data", "secret")
    )
    ids = shim.as_submitter(facts, shim.Watch(10), lambda _: [os.geteuid(), os.getgroups()])
    # Its names can be read, and nothing behind them.
    (tmp_path / "listed").mkdir()
    (tmp_path / "listed" / "file").touch()
    (tmp_path / "listed").chmod(0o744)
    found = shim.as_submitter(
        facts, shim.Watch(10), lambda roots: shim.files_below(roots["/data"], "", 10)
    )

    assert "Permission denied" in noted["hidden"]
    assert [4321, [4322]] == ids
    assert ["secret"] == found
