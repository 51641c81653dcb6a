"""What systemd hears, and whether it accepts the unit."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from daemon import systemd

UNIT = Path(__file__).parents[2] / "systemd" / "stopgapd.service"
needs_analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    """A socket where systemd would listen."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.bind(str(tmp_path / "notify"))
    sock.settimeout(5)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    return sock


def test_assignments_arrive_together(manager: socket.socket) -> None:
    """READY and its sentence are one message, and a sentence cannot bring others along."""
    with manager:
        systemd.notify("READY=1", "STATUS=filling\nSTOPPING=1")

        assert b"READY=1\nSTATUS=filling STOPPING=1" == manager.recv(4096)


def test_abstract_addresses_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that begins with @ has no file."""
    name = f"stopgap-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0{name}")
        sock.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        systemd.notify("WATCHDOG=1")

        assert b"WATCHDOG=1" == sock.recv(4096)


@pytest.mark.parametrize("address", [None, "", "/nowhere/notify"])
def test_without_a_manager_nothing_happens(
    monkeypatch: pytest.MonkeyPatch, address: str | None
) -> None:
    """The daemon runs from a shell too, and while its manager is replaced."""
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if address is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", address)

    systemd.notify("READY=1")


@needs_analyze
def test_the_unit_is_valid(tmp_path: Path) -> None:
    """systemd has nothing to say about it, whatever is installed where."""
    unit = tmp_path / UNIT.name
    program = "ExecStart=/usr/local/lib/stopgap/bin/stopgap "
    assert program in UNIT.read_text()
    unit.write_text(UNIT.read_text().replace(program, "ExecStart=/bin/true "))

    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    # Units of the machine itself may be at fault; only ours is looked at.
    ours = [line for line in found.stderr.splitlines() if UNIT.name in line]

    assert ([], 0) == (ours, found.returncode)


def test_every_protection_that_is_off_has_its_reason() -> None:
    """An option that weakens the sandbox says why, in the line above."""
    lines = UNIT.read_text().splitlines()
    off = [number for number, line in enumerate(lines) if line.endswith("=no")]

    assert off
    assert all(lines[number - 1].startswith("# Off: ") for number in off)
