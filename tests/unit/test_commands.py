"""Running programs: bounded in time and output, in an environment of our own."""

import os
import threading
import time
from pathlib import Path

import pytest

from adapters.commands import (
    SAFE_PATH,
    CommandMissingError,
    CommandOutputError,
    CommandTimeoutError,
    RunAs,
    find,
    run,
)


def program(folder: Path, name: str, text: str) -> str:
    """Write a shell script that can be run."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def is_alive(pid: int) -> bool:
    """Say whether a process exists that is not a zombie."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rsplit(")", 1)[1].split()[0] != "Z"


def wait_until_dead(pid: int) -> None:
    """Wait for the end of a process that was killed and belongs to somebody else."""
    deadline = time.monotonic() + 10
    while is_alive(pid):
        assert time.monotonic() < deadline, f"{pid} lives on"
        threading.Event().wait(0.01)


def test_an_answer_is_complete() -> None:
    """
    Exit status, both outputs and the time it took come back.
    """
    answer = run(["sh", "-c", "echo out; echo err >&2; exit 3"], timeout_seconds=10)

    assert (3, "out\n", "err\n") == (answer.code, answer.out, answer.err)
    assert 0 < answer.seconds < 10


def test_a_signal_is_a_negative_code() -> None:
    """
    A killed program is told from one that failed.
    """
    assert -9 == run(["sh", "-c", "kill -9 $$"], timeout_seconds=10).code


def test_nothing_of_our_environment_reaches_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A user's SQUEUE_FORMAT cannot change what a command prints.
    """
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    monkeypatch.setenv("SLURM_CLUSTERS", "other")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    answer = run(["env"], timeout_seconds=10, env={"SLURM_CONF": "/x"})

    expected = ["LC_ALL=C.UTF-8", f"PATH={SAFE_PATH}", "SLURM_CONF=/x", "TZ=UTC"]
    assert expected == sorted(line for line in answer.out.splitlines() if line[:2] != "_=")


def test_bytes_that_are_no_text_survive() -> None:
    """
    A name in latin-1 does not break the answer.
    """
    answer = run(["printf", r"\351\000x"], timeout_seconds=10)

    assert b"\xe9\x00x" == answer.out.encode("utf-8", "surrogateescape")


def test_arguments_are_never_interpreted() -> None:
    """
    There is no shell.
    """
    assert "$(id); *" == run(["printf", "%s", "$(id); *"], timeout_seconds=10).out


def test_stdin_is_given_whole() -> None:
    """
    More than a pipe holds goes in while the output comes out.
    """
    text = b"0123456789" * 100_000

    assert text.decode() == run(["cat"], timeout_seconds=10, stdin=text).out


def test_a_program_that_does_not_read_is_no_error() -> None:
    """
    Closing its input early is the program's right.
    """
    assert 0 == run(["true"], timeout_seconds=10, stdin=b"x" * 1_000_000).code


def test_a_missing_program_is_told(tmp_path: Path) -> None:
    """
    Neither an absent nor a non-executable file is run.
    """
    (tmp_path / "plain").write_text("")
    (tmp_path / "broken").write_text("#!/nowhere/sh\n")
    (tmp_path / "broken").chmod(0o755)
    for name in ("absent", "plain", "broken"):
        with pytest.raises(CommandMissingError, match=name):
            run([name], timeout_seconds=10, bin_dir=str(tmp_path))


def test_the_given_folder_is_the_only_one(tmp_path: Path) -> None:
    """
    With a folder given, a program of the same name elsewhere is never meant.
    """
    path = program(tmp_path, "squeue", "echo mine")

    assert path == find("squeue", bin_dir=str(tmp_path))
    with pytest.raises(CommandMissingError):
        find("sh", bin_dir=str(tmp_path))


def test_relative_places_do_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """
    What lies in the working directory is never run.
    """
    program(tmp_path, "squeue-of-mine", "echo mine")
    monkeypatch.chdir(tmp_path)
    for folder in (".", ""):
        with pytest.raises(CommandMissingError):
            find("squeue-of-mine", bin_dir=folder)


def test_a_hanging_program_dies_with_its_children(tmp_path: Path) -> None:
    """
    After the time-out no process of it is left.
    """
    pids = tmp_path / "pids"
    program(tmp_path, "hang", f"sleep 300 & echo $! $$ > {pids}; wait")
    with pytest.raises(CommandTimeoutError, match=r"hang gave no answer within 0\.3 s"):
        run(["hang"], timeout_seconds=0.3, bin_dir=str(tmp_path))

    for pid in pids.read_text().split():
        wait_until_dead(int(pid))


def test_children_left_behind_die_too(tmp_path: Path) -> None:
    """
    A program that ended leaves nobody in its group.
    """
    program(tmp_path, "leave", "sleep 300 >/dev/null 2>&1 & echo $!")
    answer = run(["leave"], timeout_seconds=10, bin_dir=str(tmp_path))

    wait_until_dead(int(answer.out))


def test_an_output_that_never_closes_is_no_answer(tmp_path: Path) -> None:
    """
    A child that keeps the output open makes the answer incomplete.
    """
    program(tmp_path, "half", "echo half; sleep 300 &")
    with pytest.raises(CommandTimeoutError):
        run(["half"], timeout_seconds=0.3, bin_dir=str(tmp_path))


def test_a_steady_trickle_does_not_extend_the_time(tmp_path: Path) -> None:
    """
    Output is no reason to wait longer.
    """
    program(tmp_path, "trickle", "while :; do echo x; done")
    with pytest.raises(CommandTimeoutError):
        run(["trickle"], timeout_seconds=0.3, bin_dir=str(tmp_path))


def test_a_flood_is_cut_off() -> None:
    """
    The daemon's memory is not the program's.
    """
    with pytest.raises(CommandOutputError, match="more than 1000000 bytes"):
        run(["yes"], timeout_seconds=30, output_bytes=1_000_000)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run programs as somebody else")
def test_a_program_runs_as_the_user() -> None:
    """
    Uid, gid and groups are the user's, none of ours is left.
    """
    answer = run(
        ["sh", "-c", "id -u; id -g; id -G"],
        timeout_seconds=10,
        run_as=RunAs(uid=12345, gid=12346, groups=(12347,)),
    )

    assert "12345\n12346\n12346 12347\n" == answer.out
