"""Slurm's text as real clusters printed it, in every situation that was captured."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from adapters.slurm.parse import (
    JobRecord,
    parse_config,
    parse_jobs,
    parse_nodes,
    parse_reservations,
    parse_version,
)
from adapters.slurm.picture import draw
from daemon.core.types import ClaimSource, Node, NodeName, NodeState
from tests.unit.captured import DATA, read

#: After everything that was captured.
TAKEN = datetime(2026, 12, 3, tzinfo=UTC)
NODE_FILES = sorted(DATA.glob("slurm-*/**/scontrol_show_node.out"))
OLD_JOB_FILES = sorted(DATA.glob("slurm-*/[0-9]*/squeue.out"))
LOOKS = sorted(path.parent for path in DATA.glob("slurm-*/look/*/squeue.out"))

# What each node of a situation means, n1 to n4: idle, busy, unavailable, unknown ("?").
MEANINGS = {
    "00-node-inval": "? ? i i",
    "01-idle": "i i i i",
    "02-alloc-mixed": "b b b i",
    "03-priority-pending": "b b b b",
    "03b-adminhold": "b b b b",
    "04a-before-preempt": "b b b b",
    "04b-during-grace": "b b b b",
    "04d-after-preempt": "b b b b",
    "04e-ended": "i i i i",
    "05-drain": "u i u u",
    "06a-not-responding": "i u u u",
    "06b-down": "i i u u",
    "07-reservation": "u u u i",
    "08-array": "b b b b",
    "09-het": "b b u u",
    "10-names": "b b b i",
    "11b-requeuehold": "b i i i",
    "12-ends": "i i i i",
    "15b-controller-just-restarted": "? ? ? ?",
}
LETTERS = {
    NodeState.IDLE: "i",
    NodeState.BUSY: "b",
    NodeState.UNAVAILABLE: "u",
    NodeState.UNKNOWN: "?",
}


def short(path: Path) -> str:
    return str(path.parent.relative_to(DATA))


def picture(folder: Path, jobs: tuple[JobRecord, ...] = ()) -> dict[NodeName, Node]:
    return dict(draw(parse_nodes(read(folder / "scontrol_show_node.out")), jobs, TAKEN))


def selected(text: str) -> str:
    """Cut the columns that stopgap asks for out of older, wider output."""
    lines = []
    for line in text.splitlines():
        job, state, _, _, _, start, nodes, *rest = line.split("|")
        moment = "N/A"
        if start != "N/A":
            moment = f"{datetime.fromisoformat(start).replace(tzinfo=UTC).timestamp():.0f}"
        columns = (re.split(r"[_+]", job)[0], state, moment, nodes, rest[6])
        lines.append("|".join(columns) + "\n")
    return "".join(lines)


def test_there_is_something_to_read() -> None:
    """
    A moved folder does not make every test here pass.
    """
    assert len(NODE_FILES) > 40
    assert len(OLD_JOB_FILES) > 30
    assert len(LOOKS) >= 10


@pytest.mark.parametrize("path", NODE_FILES, ids=short)
def test_only_whitelisted_nodes_are_idle(path: Path) -> None:
    """
    In every captured answer a node is idle only if its words and its sums say nothing else.
    """
    text = read(path)
    records = re.findall(r"^NodeName=(\S+) .*? AllocMem=(\d+) .*? State=(\S+) ", text, re.MULTILINE)
    idle = {name for name, mib, state in records if state == "IDLE" and mib == "0"}
    nodes = picture(path.parent)

    assert [name for name, _, _ in records] == sorted(nodes)
    assert idle == {name for name, node in nodes.items() if node.state is NodeState.IDLE}
    assert [state for _, _, state in records] == [nodes[name].words for name in sorted(nodes)]


@pytest.mark.parametrize(
    "path", [path for path in NODE_FILES if path.parent.name in MEANINGS], ids=short
)
def test_each_situation_means_what_it_should(path: Path) -> None:
    """
    The same situation means the same in both versions.
    """
    nodes = picture(path.parent)
    found = " ".join(LETTERS[nodes[name].state] for name in sorted(nodes))

    assert MEANINGS[path.parent.name] == found
    assert {(4, 4000)} == {(node.cpus, node.memory_mib) for node in nodes.values()}
    assert {("main", "backfill", "scavenge")} == {node.partitions for node in nodes.values()}


@pytest.mark.parametrize("path", OLD_JOB_FILES, ids=short)
def test_every_running_job_claims_its_nodes(path: Path) -> None:
    """
    Nodes of running, suspended and completing jobs are claimed and never idle.
    """
    text = read(path)
    if path.parent.name == "10-names":
        # Names with newlines: why names are not asked for.
        text = "".join(line for line in text.splitlines(keepends=True) if line.count("|") == 14)
    jobs = parse_jobs(selected(text))
    nodes = picture(path.parent, jobs)

    for job in jobs:
        for name in job.nodes:
            assert NodeState.IDLE is not nodes[name].state
            assert ClaimSource.ALLOCATED in {claim.source for claim in nodes[name].claims}


def test_a_suspended_job_holds_an_idle_node() -> None:
    """
    Slurm 22.05 calls its node plain IDLE, and does it again while memory is held.
    """
    folder = DATA / "slurm-22.05.8/11-suspended"
    nodes = picture(folder)

    assert "IDLE" == nodes[NodeName("n1")].words
    assert NodeState.BUSY is nodes[NodeName("n1")].state
    assert "a job that squeue does not list" == nodes[NodeName("n1")].claims[0].detail


@pytest.mark.parametrize("version", ["22.05.8", "24.11.5"])
def test_planned_nodes_say_when(version: str) -> None:
    """
    A node planned for a job is claimed for the start that Slurm expects.
    """
    folder = DATA / f"slurm-{version}/07-reservation"
    jobs = parse_jobs(selected(read(folder / "squeue.out")))
    (claim,) = picture(folder, jobs)[NodeName("n1")].claims
    (long,) = (job for job in jobs if job.planned == ("n1",))

    assert (ClaimSource.PLANNED, long.start) == (claim.source, claim.at)
    assert f"priority job {long.id}" == claim.detail


def test_a_reservation_is_named_where_slurm_names_it() -> None:
    """
    24.11 tells the reservation's name, 22.05 only that there is one.
    """
    for version, detail in (
        ("22.05.8", "maintenance, reserved"),
        ("24.11.5", "maintenance, reserved (maint1)"),
    ):
        (claim,) = picture(DATA / f"slurm-{version}/07-reservation")[NodeName("n3")].claims
        assert (ClaimSource.RESERVED, detail) == (claim.source, claim.detail)


@pytest.mark.parametrize("version", ["22.05.8", "24.11.5"])
def test_reservations_to_come_are_read(version: str) -> None:
    """
    Each with its begin and its nodes; of those that are on only the nodes tell.
    """
    folder = DATA / f"slurm-{version}/07-reservation"
    found = parse_reservations(read(folder / "scontrol_show_reservation.out"))
    starts = {reservation.name: reservation.start for reservation in found}
    nodes = draw(
        parse_nodes(read(folder / "scontrol_show_node.out")),
        (),
        starts["maint1"],
        found,
    )
    claims = [
        claim.detail
        for claim in nodes[NodeName("n3")].claims
        if claim.source is ClaimSource.RESERVED and claim.at > starts["maint1"]
    ]

    assert {"maint1", "alice_1", "later"} == set(starts)
    assert timedelta(hours=2) == starts["later"] - starts["maint1"]
    assert ["reservation later"] == claims
    empty = DATA / f"slurm-{version}/01-idle/scontrol_show_reservation.out"
    assert () == parse_reservations(read(empty))


@pytest.mark.parametrize("version", ["22.05.8", "24.11.5"])
def test_a_drain_is_a_claim(version: str) -> None:
    """
    Drained and failing nodes are wanted now, by whoever drained them.
    """
    nodes = picture(DATA / f"slurm-{version}/05-drain")

    assert ["drained"] == [c.detail for c in nodes[NodeName("n4")].claims]
    assert ["expected to fail"] == [c.detail for c in nodes[NodeName("n3")].claims]
    assert {ClaimSource.ALLOCATED, ClaimSource.DRAINING} == {
        claim.source for claim in nodes[NodeName("n1")].claims
    }


# What stopgap's own commands printed: per situation the nodes as above, and their claims.
OWN = {
    "idle": ("i i i i", {}),
    "allocated": ("b b b i", {"n1": ["allocated"], "n2": ["allocated"], "n3": ["allocated"]}),
    "planned": ("b u i i", {"n1": ["allocated", "planned"], "n2": ["planned"]}),
    "held": ("b i i i", {"n1": ["allocated"]}),
    "array": ("b b b i", {"n1": ["allocated"], "n2": ["allocated"], "n3": ["allocated"]}),
    "drained": ("u u i i", {"n1": ["allocated", "draining"], "n2": ["draining"]}),
    "reserved": ("u u i i", {"n1": ["reserved"], "n2": ["reserved"]}),
    "suspended": ("b i i i", {"n1": ["allocated"]}),
    "names": ("b i i i", {"n1": ["allocated"] + ["planned"] * 5}),
}


@pytest.mark.parametrize(
    "folder", [path for path in LOOKS if path.name != "controller-down"], ids=lambda p: p.name
)
def test_our_own_commands_are_understood(folder: Path) -> None:
    """
    Both answers of one look make the whole picture.
    """
    meaning, claims = OWN[folder.name]
    nodes = draw(
        parse_nodes(read(folder / "scontrol_show_node.out")),
        parse_jobs(read(folder / "squeue.out")),
        TAKEN,
    )

    assert meaning == " ".join(LETTERS[nodes[name].state] for name in sorted(nodes))
    assert claims == {
        name: [claim.source for claim in node.claims] for name, node in nodes.items() if node.claims
    }


def test_the_newest_slurm_tells_of_reservations_in_seconds() -> None:
    """
    The format of moments that stopgap asks for counts for reservations too.
    """
    folder = DATA / "slurm-26.05.5/look/reserved"
    found = parse_reservations(read(folder / "scontrol_show_reservation.out"))

    assert [("n1",), ("n2",)] == [reservation.nodes for reservation in found]
    assert {2026} == {reservation.start.year for reservation in found}


def test_a_dead_controller_prints_nothing_on_stdout() -> None:
    """
    Only the exit status and stderr tell silence from an empty cluster.
    """
    for folder in DATA.glob("slurm-*/**/*controller-down"):
        assert "" == read(folder / "squeue.out").strip()
        assert "Unable to contact slurm controller" in read(folder / "squeue.err")
        assert "1" == read(folder / "squeue.rc").strip()


def test_versions_are_found() -> None:
    """
    Debian and SchedMD name the package differently.
    """
    for path in DATA.glob("slurm-*/**/version.out"):
        version = next(part for part in path.parts if part.startswith("slurm-"))
        assert version.removeprefix("slurm-") == parse_version(read(path))


@pytest.mark.parametrize("version", ["22.05.8", "24.11.5"])
def test_the_configuration_is_read(version: str) -> None:
    """
    Keys and values come out as they are printed.
    """
    config = parse_config(read(DATA / f"slurm-{version}/01-idle/scontrol_show_config.out"))

    assert version == config["SLURM_VERSION"]
    assert "none" == config["PrivateData"]
    assert config["SlurmctldHost"].startswith("vm")
