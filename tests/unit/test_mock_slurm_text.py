"""The cluster model prints what a real Slurm printed in the same situation, byte for byte."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from adapters.mock_slurm import text
from adapters.mock_slurm.ledger import Act, Ledger
from adapters.mock_slurm.programs import run
from tests.unit.captured import DATA, read

OWN = ("22.05.8", "26.05.5")
#: What only a machine can know.
FACTS = (
    *("CPULoad", "OS", "FreeMem", "BootTime", "SlurmdStartTime", "LastBusyTime"),
    *("Port", "NodeAddr", "NodeHostName"),
)
#: And what the site that was captured for 24.11 has configured.
SITE = (
    *("AvailableFeatures", "ActiveFeatures", "Gres", "Partitions", "CoresPerSocket", "Sockets"),
    "CfgTRES",
)
SECONDS = {"SLURM_TIME_FORMAT": "%s"}


def facts_of(captured: str, keys: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Take from what was captured what the model cannot know."""
    found = {}
    for line in captured.splitlines():
        if line.startswith("NodeName="):
            head = line.split(" Reason=")[0]
            values = dict(re.findall(r"(\w+)=(.*?)(?= +\w+=| *$)", head))
            found[values["NodeName"]] = {key: values[key] for key in keys if key in values}
    return found


def ledger(version: str, at: float, *acts: Act, first: int = 1) -> Ledger:
    machines = [(f"n{number}", 4, 4000) for number in range(1, 5)]
    made = Ledger(version=version, machines=machines, start=at, now=at, next_job=first)
    made.acts += acts
    return made


def idle(*_: object) -> list[Act]:
    return []


def planned(at: float, _: str) -> list[Act]:
    return [
        Act(at=at, what="submit", job=3, nodes=["n1"], seconds=600),
        Act(at=at, what="submit", job=4, nodes=["n1", "n2"], seconds=600),
    ]


def drained(at: float, _: str) -> list[Act]:
    forged = "x\nNodeName=n3 CPUAlloc=0 State=IDLE"
    return [
        Act(at=at, what="submit", job=6, nodes=["n1"], seconds=600),
        Act(at=at, what="drain", nodes=["n1"], text='a|b "c" größe \\'),
        Act(at=at, what="drain", nodes=["n2"], text=forged),
    ]


def suspended(at: float, jobs: str) -> list[Act]:
    job = int(jobs.split("|", maxsplit=1)[0])
    return [
        Act(at=at, what="submit", job=job, nodes=["n1"], seconds=600),
        Act(at=at, what="suspend", job=job),
    ]


def reserved(at: float, _: str) -> list[Act]:
    return [
        Act(at=at, what="reserve", begin=at, nodes=[node], seconds=3600, text=name, maintenance=m)
        for node, name, m in (("n1", "root_1", False), ("n2", "root_2", True))
    ]


SITUATIONS: dict[str, Callable[[float, str], list[Act]]] = {
    "idle": idle,
    "planned": planned,
    "drained": drained,
    "suspended": suspended,
    "reserved": reserved,
}


def begun(folder: Path) -> float:
    """Return when the situation began: a job's start, a drain's or a reservation's moment."""
    texts = "".join(read(path) for path in sorted(folder.glob("*.out")))
    found = re.search(r"\|(?:RUNNING|SUSPENDED)\|(\d+)\||\[root@(\d+)\]|_1 StartTime=(\d+)", texts)
    return float(next(filter(None, found.groups()))) if found else 1_800_000_000.0


@pytest.mark.parametrize("version", OWN)
@pytest.mark.parametrize("situation", SITUATIONS)
def test_our_own_commands_print_what_slurm_did(version: str, situation: str) -> None:
    """
    Nodes, jobs and reservations, in both captured releases.
    """
    folder = DATA / f"slurm-{version}/look/{situation}"
    at = begun(folder)
    captured = read(folder / "scontrol_show_node.out")
    played = ledger(version, at, *SITUATIONS[situation](at, read(folder / "squeue.out")))
    # A drain is a moment later than the job that it finds.
    drains = re.findall(r"\[root@(\d+)\]", captured)
    reasons = {n: (r, float(drains[0])) for n, (r, _) in played.reasons().items()}
    facts = text.Facts(version=version, nodes=facts_of(captured, FACTS), reasons=reasons)

    assert captured == run(played, "scontrol", ["show", "node"], SECONDS, facts).out
    for file, name, argv in (
        ("squeue", "squeue", ["--format=%A|%T|%S|%N|%Y"]),
        ("scontrol_show_reservation", "scontrol", ["show", "reservation"]),
    ):
        if (folder / f"{file}.out").exists() and situation != "drained":
            assert read(folder / f"{file}.out") == run(played, name, argv, SECONDS, facts).out


@pytest.mark.parametrize("version", ["22.05.8", "24.11.5"])
def test_an_idle_cluster_is_printed_as_in_each_release(version: str) -> None:
    """
    The fields of a node differ between releases, and so do their blanks.
    """
    folder = DATA / f"slurm-{version}/01-idle"
    captured = read(folder / "scontrol_show_node.out")
    played = ledger(version, 1_800_000_000.0)
    facts = text.Facts(version=version, seconds=False, nodes=facts_of(captured, FACTS + SITE))

    assert captured == run(played, "scontrol", ["show", "node"], {}, facts).out
    assert read(folder / "scontrol_show_reservation.out") == (
        run(played, "scontrol", ["show", "reservation"], {}).out
    )


@pytest.mark.parametrize("version", ["22.05.8", "24.11.5"])
@pytest.mark.parametrize(("situation", "node"), [("05-drain", "n4"), ("07-reservation", "n3")])
def test_single_nodes_are_printed_as_in_each_release(
    version: str, situation: str, node: str
) -> None:
    """
    Where a situation is the model's in one node only, that node's line is.
    """
    folder = DATA / f"slurm-{version}/{situation}"
    captured = read(folder / "scontrol_show_node.out")
    (line,) = (each for each in captured.split("\n") if each.startswith(f"NodeName={node} "))
    at = 1_800_000_000.0
    reason = re.search(r"Reason=(.*) \[root@(\S+)\]", line)
    act = Act(at=at, what="reserve", begin=at, nodes=[node], seconds=3600, maintenance=True)
    act.text = "maint1"
    reasons = {}
    if reason:
        act = Act(at=at, what="drain", nodes=[node])
        moment = datetime.fromisoformat(reason[2]).replace(tzinfo=UTC).timestamp()
        reasons[node] = (reason[1], moment)
    known = facts_of(captured, FACTS + SITE)
    facts = text.Facts(version=version, seconds=False, nodes=known, reasons=reasons)

    printed = run(ledger(version, at, act), "scontrol", ["show", "node"], {}, facts).out
    assert line in printed.split("\n")


@pytest.mark.parametrize("version", OWN)
@pytest.mark.parametrize(
    ("name", "argv", "file"),
    [("scontrol", ["show", "node"], "scontrol_show_node"), ("squeue", [], "squeue")],
)
def test_a_dead_controller_is_told_as_slurm_does(
    version: str, name: str, argv: list[str], file: str
) -> None:
    """
    Both streams and the exit status.
    """
    played = ledger(version, 1_800_000_000.0)
    played.dead = True
    said = run(played, name, argv, {})
    folder = DATA / f"slurm-{version}/look/controller-down"

    assert read(folder / f"{file}.out") == said.out
    assert read(folder / f"{file}.err") == said.err
    assert read(folder / f"{file}.rc").strip() == str(said.code)


@pytest.mark.parametrize("version", ["22.05.8", "24.11.5", "26.05.5"])
def test_versions_are_told_as_debian_does(version: str) -> None:
    """
    The name is that of the package.
    """
    path = next(DATA.glob(f"slurm-{version}/**/version.out"))

    assert read(path) == run(ledger(version, 0.0), "scontrol", ["--version"], {}).out
