"""The command line: what it prints, how it exits, what it tells of mistakes."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from daemon.api.client import Client, DaemonUnreachableError
from daemon.api.schemas import (
    CheckpointView,
    DrainView,
    GoneView,
    JobChange,
    JobDetail,
    JobView,
    NodeView,
    PanicView,
    ProbeView,
    SetupView,
    StatusView,
    VacateView,
)
from daemon.cli.app import app
from daemon.cli.output import clean
from daemon.cli.waiting import Wait
from daemon.core.types import JobState
from tests.contract.clock import ManualClock
from tests.unit.counter import NOON, Counter
from tests.unit.doors import opened

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-c", "from daemon.cli.app import main; main()"]
SUBMIT = ("submit", "--image", "stopgap/busybox:1")


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Done]


DESK = Counter()


@pytest.fixture(scope="module")
def door() -> Iterator[Path]:
    """One door for the whole file."""
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder) / "s", DESK) as path:
        yield path


@pytest.fixture
def desk() -> Counter:
    """What is behind the door; as good as new for each test."""
    DESK.reset()
    return DESK


@pytest.fixture
def run(
    door: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> Run:
    DESK.reset()
    monkeypatch.setenv("STOPGAP_SOCKET", str(door))

    def call(*words: str) -> Done:
        with pytest.raises(SystemExit) as caught:
            app([*words], prog_name="stopgap")
        out, err = capsysbinary.readouterr()
        return Done(int(caught.value.code or 0), out, err.decode())

    return call


def test_a_job_is_submitted_with_everything(run: Run, desk: Counter) -> None:
    """Every option arrives, and what follows -- is the job's, whatever it looks like."""
    found = run(
        *SUBMIT,
        *("--name", "sim", "--cpus", "2", "--mem", "4G", "--time", "1-12:00:00"),
        *("--env", "A=b=c", "--env", "EMPTY=", "--workdir", "/w", "--output", "x/../out.log"),
        *("--checkpoint", "criu", "--checkpoint-every", "2:00:00", "--after-crash", "resume"),
        *(
            "--results",
            "/d/a",
            "--results",
            "/d/b",
            "--json",
            "--",
            "sh",
            "-c",
            "echo --",
            "--json",
            "--",
            "x",
        ),
    )

    assert 0 == found.code, found.err
    assert ["sh", "-c", "echo --", "--json", "--", "x"] == found.document["command"]
    assert {
        "name": "sim",
        "cpus": 2,
        "mem_mib": 4096,
        "time_seconds": 129600,
        "workdir": "/w",
        "output": str(Path.cwd() / "out.log"),
        "checkpoint": "criu",
        "checkpoint_every_seconds": 7200.0,
        "after_crash": "resume",
        "results": ["/d/a", "/d/b"],
    }.items() <= found.document.items()
    assert [{"A": "b=c", "EMPTY": ""}] == desk.environments


def test_options_end_at_the_command(run: Run) -> None:
    """-- may be left out, as with srun."""
    assert ["ls", "-l", "--json"] == run(*SUBMIT, "--json", "ls", "-l", "--json").document[
        "command"
    ]


def test_a_person_reads_a_sentence(run: Run) -> None:
    """Without --json."""
    assert Done(0, b"job 1 is queued\n", "") == run(*SUBMIT, "--", "true")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ([*SUBMIT], 2, "the command is missing; write it last, after --"),
        ([*SUBMIT, "--"], 2, "the command is missing"),
        (["submit", "--", "true"], 2, "--image"),
        ([*SUBMIT, "--mem", "0", "--", "true"], 2, "what it needs at its peak"),
        ([*SUBMIT, "--mem", "much", "--", "true"], 2, "512M or 4G"),
        ([*SUBMIT, "--mem", "1M", "--", "true"], 1, "--mem: must be at least 6 MiB"),
        ([*SUBMIT, "--mem", "9G", "--", "true"], 1, "ask for at most --mem 8192M"),
        ([*SUBMIT, "--cpus", "0", "--", "true"], 2, "--cpus"),
        ([*SUBMIT, "--cpus", "5", "--", "true"], 1, "ask for at most --cpus 4"),
        ([*SUBMIT, "--time", "0", "--", "true"], 2, "leave the limit out"),
        ([*SUBMIT, "--time", "soon", "--", "true"], 2, "1-12:00:00"),
        ([*SUBMIT, "--mount", "/data", "--", "true"], 2, "is not SOURCE:TARGET"),
        ([*SUBMIT, "--mount", "/a:/b:rx", "--", "true"], 2, "is not SOURCE:TARGET"),
        ([*SUBMIT, "--mount", "a:/b", "--", "true"], 1, "must be an absolute path"),
        ([*SUBMIT, "--mount", "/etc:/b", "--", "true"], 1, "/etc may not be mounted"),
        ([*SUBMIT, "--env", "TOKEN", "--", "true"], 2, "has no value; write NAME=VALUE"),
        ([*SUBMIT, "--env", "=x", "--", "true"], 2, "has no name; write NAME=VALUE"),
        ([*SUBMIT, "--time", "1:99", "--", "true"], 2, "99 seconds are more than a minute"),
        ([*SUBMIT, "--env", "STOPGAP_TICKET=x", "--", "true"], 1, "STOPGAP_TICKET cannot be set"),
        ([*SUBMIT, "--checkpoint", "magic", "--", "true"], 2, "--checkpoint"),
        (["submit", "--image", "Not An Image", "--", "true"], 1, "name it as docker pull would"),
        ([*SUBMIT, "--", "\udcff"], 1, "send JSON"),
        (["show", "99"], 1, "there is no job 99 of yours\n  stopgap queue lists them"),
        (["show", "x"], 2, "JOB"),
        (["show", "-1"], 2, "-1"),
        (["logs", "99"], 1, "there is no job 99"),
        (["wait", "99"], 1, "there is no job 99"),
        (["cancel"], 2, "JOB"),
        (["vacate"], 2, "--node"),
        (["vacate", "--node", "n1", "--wait", "0"], 1, "more than 0 seconds"),
        (["node", "drain", "n9"], 1, "n9: there is no node n9\n  stopgap nodes lists them"),
        (["node", "drain", "n["], 2, "is not a host list"),
        (["frobnicate"], 2, "frobnicate"),
    ],
)
def test_mistakes_are_told_and_change_nothing(
    run: Run, desk: Counter, *, words: list[str], code: int, told: str
) -> None:
    """1 is the daemon's no, 2 a slip of the pen; both end with what to do."""
    found = run(*words)

    assert (code, b"") == (found.code, found.out), found
    assert told in found.err
    assert "Traceback" not in found.err
    assert not desk.found


@pytest.mark.parametrize("words", [("queue", "--json"), ("status",), ("logs", "1")])
def test_an_answer_that_cannot_be_written_is_told(door: Path, words: Any) -> None:
    """A full disk behind stdout is a sentence, not a traceback."""
    DESK.reset()
    Client(door).submit({"image": "x", "command": ["true"]})
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*PROGRAM, *words],
            env={**os.environ, "STOPGAP_SOCKET": str(door), "PYTHONPATH": str(ROOT)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert 1 == done.returncode
    assert "stopgap: the answer could not be written: No space left on device\n" == done.stderr


def test_without_a_daemon_the_status_is_3(tmp_path: Path, run: Run) -> None:
    """Scripts can tell a no from a silence."""
    found = run("queue", "--socket", str(tmp_path / "none"))

    assert 3 == found.code
    assert "no daemon answers at" in found.err
    assert "systemctl status stopgapd" in found.err


def test_the_queue_is_a_table(run: Run, desk: Counter) -> None:
    """One line per job, plain where no terminal is."""
    run(*SUBMIT, "--name", "sim", "--mem", "4G", "--", "true")
    heads, row = run("queue").text.splitlines()

    assert "ID NAME USER STATE NODE CPUS MEM RAN MOVES REASON" == " ".join(heads.split())
    assert ["1", "sim", desk.callers[0].name, "queued", "-", "1", "4G", "0:00", "0"] == row.split()


def test_ended_jobs_are_listed_on_demand(run: Run, desk: Counter) -> None:
    """The queue is what is still to come; others' jobs have their own option."""
    run(*SUBMIT, "--", "true")
    desk.end(1, JobState.COMPLETED, 0)

    assert [] == run("queue", "--json").document
    assert [1] == [job["id"] for job in run("queue", "--ended", "--json").document]
    assert [] == run("queue", "--ended", "--user", "nobody-else", "--json").document


def test_a_job_is_shown_with_its_history(run: Run, desk: Counter) -> None:
    """Fields first, then a table for each part of its life."""
    run(*SUBMIT, "--", "sh", "-c", "true")
    desk.end(1, JobState.FAILED, 3)
    shown = run("show", "1").text

    assert "exit_code     3\n" in shown
    assert "command       sh -c true\n" in shown
    assert "EPOCH" in shown
    assert "submitted" in shown


def test_logs_are_bytes(run: Run, desk: Counter) -> None:
    """Nothing is added on the way to a file."""
    run(*SUBMIT, "--", "true")

    assert Done(0, b"one\n\xff\x00two\n", "") == run("logs", "1")
    desk.may_go_on.set()
    assert Done(0, b"one\n\xff\x00two\nlast\n", "") == run("logs", "-f", "1")


def test_each_job_of_a_verb_is_asked_for(run: Run) -> None:
    """One that is refused does not keep the others from it."""
    run(*SUBMIT, "--", "true")
    found = run("cancel", "99", "1")

    assert (1, "job 1 cancelled; it is cancelled\n") == (found.code, found.text)
    assert "job 99: there is no job 99 of yours" in found.err
    again = run("cancel", "1", "--json")
    assert (0, "already_cancelled") == (again.code, again.document[0]["result"])


@pytest.mark.parametrize(
    ("verb", "told"), [("hold", "job 1 held"), ("release", "job 1 already released")]
)
def test_hold_and_release(run: Run, verb: str, told: str) -> None:
    """The daemon's own word for what happened."""
    run(*SUBMIT, "--", "true")

    assert run(verb, "1").text.startswith(told)


@pytest.mark.parametrize(
    ("state", "exit_code", "code", "told"),
    [
        (JobState.COMPLETED, 0, 0, "job 1 completed\n"),
        (JobState.FAILED, 3, 1, "job 1 failed with exit code 3\n"),
        (JobState.CANCELLED, None, 1, "job 1 cancelled\n"),
    ],
)
def test_wait_tells_how_jobs_ended(
    run: Run, desk: Counter, *, state: JobState, exit_code: int | None, code: int, told: str
) -> None:
    """Status 0 only when all of them completed."""
    run(*SUBMIT, "--", "true")
    desk.end(1, state, exit_code)

    found = run("wait", "1", "1")

    assert (code, told) == (found.code, found.text)
    assert [state] == [job["state"] for job in run("wait", "1", "--json").document]


def test_waiting_has_an_end(door: Path, run: Run, desk: Counter) -> None:
    """With a time, what has not ended by then is left in the list."""
    run(*SUBMIT, "--", "true")
    run(*SUBMIT, "--", "true")
    desk.end(2, JobState.COMPLETED, 0)
    waiting = Wait(Client(door), [1, 2], 600, ManualClock())

    assert [2] == [job["id"] for job in waiting.ends()]
    assert [1] == waiting.missing


class Restarting(Client):
    """A daemon that is away for some calls."""

    def __init__(self, path: Path, desk: Counter, away: range) -> None:
        super().__init__(path)
        self._desk = desk
        self._away = away
        self._calls = 0

    def job(self, job: int) -> dict[str, Any]:
        self._calls += 1
        if self._calls in self._away:
            raise DaemonUnreachableError("no daemon answers", "")
        if self._calls == self._away.stop:
            self._desk.end(job, JobState.COMPLETED, 0)
        return super().job(job)


@pytest.mark.parametrize(
    ("away", "survives"), [(range(2, 10), True), (range(2, 100), False), (range(1, 3), False)]
)
def test_waiting_survives_a_restart(
    door: Path, run: Run, desk: Counter, away: range, *, survives: bool
) -> None:
    """A daemon that comes back is waited for, one that was never there is not."""
    run(*SUBMIT, "--", "true")
    waiting = Wait(Restarting(door, desk, away), [1], None, ManualClock())

    if survives:
        assert [1] == [job["id"] for job in waiting.ends()]
    else:
        with pytest.raises(DaemonUnreachableError):
            list(waiting.ends())


def test_status_begins_with_the_sentence(run: Run) -> None:
    """The same that systemd shows; problems stand out."""
    lines = run("status").text.splitlines()

    assert "filling 1 of 1 idle nodes" == lines[0]
    assert "batch system  slurm 23.11.4" in lines
    assert "! n2 does not answer" == lines[-1]


def test_status_tells_how_old_its_picture_is(run: Run) -> None:
    """Everything is decided on the batch system's last answer."""
    (line,) = (line for line in run("status").text.splitlines() if line.startswith("answered"))

    assert line.endswith(", 12 s ago; the last question took 0.017 s")


def test_status_tells_what_would_have_been_done(run: Run) -> None:
    """In shadow mode that is all there is."""
    (line,) = (line for line in run("status").text.splitlines() if line.startswith("shadow"))

    assert line.endswith("3 starts, 2 jobs on nodes now, evictions: 1 on n1")


def test_nodes_are_a_table(run: Run) -> None:
    """What a node does and who wants it."""
    _, row = run("nodes").text.splitlines()

    assert ["n1", "idle", "4", "4G", "away", "1", "planned"] == row.split()


def test_a_node_is_called_dead_only_by_who_knows_what_it_means(run: Run, desk: Counter) -> None:
    """Without --yes it is said and nothing is done."""
    found = run("node", "gone", "n[1-2]")

    assert (2, "") == (found.code, found.text)
    assert "no process on n1, n2 lives any more" in found.err
    assert "--yes" in found.err
    assert [] == desk.callers


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["drain", "n[1-2]"], 0, "n1 drained\nn2 already drained\n"),
        (["undrain", "n1"], 0, "n1 undrained\n"),
        (["gone", "--yes", "n1"], 0, "n1 gone; jobs that fall back: 1\n"),
        (["setup", "n1"], 0, "n1 is set up\n  place the shim\n"),
        (["setup", "--dry-run", "n1"], 0, "n1 would be changed\n  place the shim\n"),
        (["probe", "n1"], 0, "n1 is fit: 3 rounds in 0.0 s\n  incremental: yes\n"),
        (
            ["probe", "n1", "n2"],
            1,
            "n1 is fit: 3 rounds in 0.0 s\n  incremental: yes\nn2 is not fit: CRIU is missing\n",
        ),
    ],
)
def test_nodes_are_administered(run: Run, *, words: list[str], code: int, told: str) -> None:
    """A sentence for each node; a node that is not fit is a failure of the command."""
    found = run("node", *words)

    assert (code, told) == (found.code, found.text)


def test_a_long_history_is_cut_for_people(run: Run, desk: Counter) -> None:
    """
    The newest lines are shown, and where the others are.
    """
    run(*SUBMIT, "--", "true")
    kept = [
        CheckpointView(
            generation=n,
            time=NOON,
            bytes=1,
            written_bytes=1,
            plain_bytes=1,
            seconds=0.1,
            kind="periodic",
        )
        for n in range(1, 81)
    ]
    changed = ["/data/table was rewritten"]
    update = {"checkpoints": kept, "changed_files": changed}
    desk.found[1] = desk.found[1].model_copy(update=update)
    lines = run("show", "1").text.splitlines()

    assert "the last 50 of 80 checkpoints; --json has all" in lines
    assert 50 == sum("periodic" in line for line in lines)
    assert "! /data/table was rewritten" in lines
    assert 80 == len(run("show", "1", "--json").document["checkpoints"])


def test_a_node_is_vacated(run: Run) -> None:
    """It returns when nothing is left."""
    found = run("vacate", "--node", "n1", "--wait", "2.5")

    assert "n1 is empty after 2.5 s: 2 evicted, 0 killed\n" == found.text


@pytest.mark.parametrize("words", [[], ["n[1-2]"]])
def test_panic_is_called_only_by_who_knows_what_it_costs(
    run: Run, desk: Counter, words: list[str]
) -> None:
    """Without --yes it is said and nothing is done."""
    found = run("panic", *words)

    assert (2, "") == (found.code, found.text)
    assert ("n1, n2" if words else "all nodes") in found.err
    assert "--yes" in found.err
    assert [] == desk.callers


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--yes", "n1"], 0, "n1 is empty after 2.3 s: 2 evicted, 1 killed\n"),
        (
            ["--yes"],
            1,
            (
                "n1 is empty after 2.3 s: 2 evicted, 1 killed\n"
                "n2 is NOT proven empty after 20.0 s: no answer\n"
            ),
        ),
        (["--over", "n[1-2]"], 0, "n1 over\nn2 over\n"),
    ],
)
def test_panic_says_which_nodes_are_empty(
    run: Run, *, words: list[str], code: int, told: str
) -> None:
    """A line for each; one that is not proven empty is a failure of the command."""
    found = run("panic", *words)

    assert (code, told) == (found.code, found.text)


@pytest.mark.parametrize(
    ("words", "model"),
    [
        ([*SUBMIT, "--json", "--", "true"], JobDetail),
        (["queue", "--json"], JobView),
        (["show", "--json", "1"], JobDetail),
        (["cancel", "--json", "1"], JobChange),
        (["status", "--json"], StatusView),
        (["nodes", "--json"], NodeView),
        (["node", "drain", "--json", "n1"], DrainView),
        (["node", "setup", "--json", "n1"], SetupView),
        (["node", "probe", "--json", "n1"], ProbeView),
        (["node", "gone", "--yes", "--json", "n1"], GoneView),
        (["vacate", "--json", "--node", "n1"], VacateView),
        (["panic", "--yes", "--json", "n1"], PanicView),
    ],
)
def test_json_has_every_field_of_the_contract(run: Run, *, words: list[str], model: Any) -> None:
    """One line, all fields, each of them in docs/cli-json.md."""
    contract = (ROOT / "docs" / "cli-json.md").read_text()
    run(*SUBMIT, "--", "true")
    found = run(*words)
    document = found.document[0] if isinstance(found.document, list) else found.document

    assert 1 == found.out.count(b"\n")
    assert set(model.model_fields) == set(document)
    assert [] == [field for field in document if f"`{field}`" not in contract]


def test_programs_on_nodes_do_not_steer_the_terminal() -> None:
    """Escape sequences in an error of a node arrive as text."""
    assert "\ufffd[31mred\ufffd" == clean("\x1b[31mred\n")


def test_a_reader_who_has_seen_enough_is_no_error(door: Path, desk: Counter) -> None:
    """stopgap logs JOB | head -1 prints its line and nothing else."""
    desk.printed = [b"x" * 65536] * 64
    Client(door).submit({"image": "b", "command": ["true"]})
    found = subprocess.run(
        ["sh", "-c", '"$@" | head -c 3; exit 0', "sh", *PROGRAM, "logs", "1"],
        env={**os.environ, "STOPGAP_SOCKET": str(door)},
        cwd=ROOT,
        capture_output=True,
        timeout=30,
        check=False,
    )

    assert (b"xxx", b"") == (found.stdout, found.stderr)


def test_help_costs_no_daemon() -> None:
    """Neither the daemon nor what it is built from is loaded for a command."""
    program = (
        "import sys, daemon.cli.app, daemon.cli.waiting\n"
        "print(*{name.partition('.')[0] for name in sys.modules} & set(sys.argv[1:]))"
    )
    heavy = ["fastapi", "uvicorn", "docker", "sqlmodel", "sqlalchemy", "httpx", "rich"]
    found = subprocess.run(
        [sys.executable, "-c", program, *heavy],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    assert "" == found.stdout.strip()


@pytest.mark.parametrize("words", [["--help"], ["submit", "--help"], ["node", "--help"]])
def test_help_is_plain_text(run: Run, words: list[str]) -> None:
    """It says what each command does."""
    found = run(*words)

    assert 0 == found.code
    assert "Usage: stopgap" in found.text


def test_the_version_is_printed(run: Run) -> None:
    """Whether it is installed or run from its sources."""
    assert run("--version").text.startswith("stopgap")


@pytest.mark.parametrize(("words", "code"), [(["config", "check"], 1), (["serve"], 2)])
def test_a_bad_configuration_is_told_whole(
    tmp_path: Path, run: Run, words: list[str], code: int
) -> None:
    """Check and serve find the same; serve's status keeps systemd from trying again."""
    path = tmp_path / "config.toml"
    path.write_text("[daemon]\ninstnce = 1\n[polcy]\n")
    found = run(*words, "--config", str(path))

    assert code == found.code
    assert [
        f"stopgap: {path} is not usable:",
        "  daemon.instnce: there is no such key",
        "  polcy: there is no such key",
    ] == found.err.splitlines()


def test_the_example_is_printed(run: Run) -> None:
    """A site starts from it."""
    assert (ROOT / "config.example.toml").read_text() == run("config", "example").text
