"""What the shim's verbs tell and do, on a node that changes meanwhile."""

from pathlib import Path
from types import ModuleType

import pytest


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("runc version 1.1.5+ds1\ncommit: 1.1.5", "1.1.5+ds1"),
        ("Version: 4.2.1\n", "4.2.1"),
        ("tar (GNU tar) 1.34\n", "1.34"),
        ("*** Zstandard CLI (64-bit) v1.5.4, by Yann Collet ***\n", "1.5.4"),
        ("", ""),
    ],
)
def test_version_is_read(shim: ModuleType, text: str, expected: str) -> None:
    """
    Every program says it in its own words.
    """
    assert expected == shim.version(text)


def test_a_cgroup_that_is_gone_is_not_frozen(shim: ModuleType, tmp_path: Path) -> None:
    """
    It may vanish between two looks.
    """
    gone = str(tmp_path / "gone")

    assert not shim.is_frozen(gone)
    assert not shim.told_to_freeze(gone)


def test_a_prolog_ends_although_a_process_does_not(
    shim: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A process that waits for a disk survives every kill; the batch system is not kept waiting.
    """
    conf = shim.Conf("hook_seconds=0\nhook_unreachable_seconds=0\n")
    monkeypatch.setattr(shim, "segments", lambda _conf: [(1, 1, "/one"), (2, 1, "/two")])
    monkeypatch.setattr(shim, "processes", lambda _segment: [4242])
    monkeypatch.setattr(shim, "freeze_segment", lambda *_: None)
    monkeypatch.setattr(shim, "records", list)
    killed: list[str] = []

    def kill_all(place: str, _seconds: float) -> list[int]:
        killed.append(place)
        return [4242]

    monkeypatch.setattr(shim, "kill_all", kill_all)

    assert {"processes": 2} == shim.prolog(conf)
    assert ["/one", "/two"] == killed


def test_a_prolog_without_a_key_vacates_by_itself(
    shim: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Nobody can be told then, and that is no reason to leave jobs running.
    """
    monkeypatch.setattr(shim, "HERE", str(tmp_path))

    assert not shim.tell_daemon(shim.Conf("daemon_url=http://127.0.0.1:1\n")).is_set()
