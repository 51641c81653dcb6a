"""What the shim saves, and what it refuses to."""

from pathlib import Path
from types import ModuleType

import pytest


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/plain", "/plain"),
        (r"/a\040b\134c", r"/a b\c"),
        (r"\011x\012", "\tx\n"),
        (r"a\,b", r"a,b"),
    ],
)
def test_names_in_mountinfo_are_unescaped(shim: ModuleType, text: str, expected: str) -> None:
    """
    The kernel writes blanks as octal numbers, overlay's own commas with a backslash.
    """
    assert expected == shim.unescape(text)


@pytest.mark.parametrize(
    ("name", "size", "expected"),
    [
        ("images/pages-1.img", 1, True),
        ("images/core-1.img", 1 << 30, False),
        ("images/mm-1.img", 1 << 30, False),
        ("layer.tar", 10240, False),
        ("layer.tar", 1 << 30, True),
        ("images/ghost-file-3.img", 1 << 30, True),
    ],
)
def test_only_data_is_hashed_late(shim: ModuleType, name: str, size: int, expected: bool) -> None:
    """
    What CRIU interprets is signed with the manifest, however large.
    """
    assert expected == shim.is_bulk(name, size)


def test_a_gpu_needs_criu_to_know_it(
    shim: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Its plugin and NVIDIA's helper have to be there; the refusal says what to do instead.
    """
    monkeypatch.setattr(shim, "PLUGINS", (str(tmp_path),))
    monkeypatch.setenv("PATH", str(tmp_path))
    links = {"/dev/null", "/dev/nvidia0", "/dev/nvidiactl"}

    with pytest.raises(shim.Failure, match=r"uses a GPU .*--checkpoint signal or none"):
        shim.refuse(links)

    (tmp_path / "cuda-checkpoint").touch()
    (tmp_path / "cuda_plugin.so").touch()
    shim.refuse(links)


def test_what_is_ordinary_is_not_refused(shim: ModuleType) -> None:
    """
    Files of the kernel among it, which CRIU can open again.
    """
    shim.refuse({"/proc/1/status", "/proc", "anon_inode:[eventpoll]", "socket:[1]", "/dev/zero"})
