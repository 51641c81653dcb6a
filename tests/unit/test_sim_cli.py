"""``stopgap simulate`` as people and scripts meet it."""

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from daemon.cli.app import app

SWF = "; MaxProcs: 4\n" + "".join(
    f"{n} {n * 100} 0 {50 + n} {1 + n % 4} -1 -1 4 900 -1 1 1 1 -1 1 1 -1 -1\n"
    for n in range(1, 40)
)
KEYS = {
    "jobs",
    "mean_wait_seconds",
    "max_wait_seconds",
    "utilization",
    "idle_node_seconds",
    "harvested_node_seconds",
    "overhead_node_seconds",
    "lost_node_seconds",
    "achievable_share",
    "idle_share",
    "evictions",
    "migrations",
    "priority_delay_seconds",
    "cpu_seconds",
}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "small.swf"
    path.write_text(SWF)
    return path


def invoke(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["simulate", *map(str, words)])
    return done.exit_code, done.output


def test_json_has_every_figure(trace: Path) -> None:
    """
    The keys that docs/cli-json.md promises.
    """
    code, text = invoke(trace, "--json")
    found = json.loads(text)

    assert 0 == code
    assert set(found) >= KEYS
    assert {"mean", "p99", "max"} == set(found["priority_delay_seconds"])
    assert 39 == found["jobs"]
    assert 0 < found["achievable_share"] <= 1


def test_every_start_is_written(trace: Path, tmp_path: Path) -> None:
    """
    A line of CSV for each priority job.
    """
    starts = tmp_path / "starts.csv"
    invoke(trace, "--policy", "none", "--starts", starts)

    with starts.open() as file:
        rows = list(csv.DictReader(file))
    assert [str(n) for n in range(1, 40)] == [row["id"] for row in rows]
    assert all(int(row["start"]) >= int(row["submit"]) for row in rows)
    assert all(0 < int(row["end"]) - int(row["start"]) <= 900 for row in rows)


def test_policies_stand_side_by_side(trace: Path) -> None:
    """
    A table for people, a list for scripts.
    """
    code, text = invoke(trace, "--policy", "all", "--scheduler", "conservative")
    _, document = invoke(trace, "--policy", "none", "--policy", "paper", "--json")

    assert 0 == code
    assert "STOPGAP" in text
    assert "harvested" in text
    assert ["none", "paper"] == [each["policy"] for each in json.loads(document)["results"]]


def test_results_are_kept_and_used_again(trace: Path, tmp_path: Path) -> None:
    """
    The same question is answered once; another, or another trace, anew.
    """
    kept = tmp_path / "kept"
    first = json.loads(invoke(trace, "--json", "--out", kept)[1])
    again = json.loads(invoke(trace, "--json", "--out", kept)[1])
    other = json.loads(invoke(trace, "--json", "--out", kept, "--poll", "60")[1])

    assert first == again
    page = (kept / "small.swf.html").read_text()
    assert "stopgap" in page
    assert "http" not in page
    assert other["harvested_node_seconds"] < first["harvested_node_seconds"]


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (("--format", "sacct"), 1, "no column"),
        (("--costs", "/nowhere"), 1, "/nowhere cannot be used"),
        (("--policy", "magic"), 2, "magic"),
        (("--job-memory", "lots"), 2, "write for example"),
        (("--job-memory", "999999999"), 1, "node-memory"),
        (("--starts", "/nowhere/file"), 1, "/nowhere/file"),
    ],
)
def test_what_cannot_be_done_is_told(
    trace: Path, words: tuple[str, ...], code: int, what: str
) -> None:
    """
    With what to do instead, and an exit status that says whose mistake it was.
    """
    found, text = invoke(trace, *words)

    assert code == found
    assert what in text
