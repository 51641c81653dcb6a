"""PBS's text as a real one printed it, in every situation that was captured."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from adapters.pbs.parse import JobRecord, parse_jobs, parse_nodes, parse_reservations
from adapters.pbs.picture import draw
from daemon.core.types import ClaimSource, Node, NodeName, NodeState
from tests.unit.captured import DATA, read
from tests.unit.pbs_text import MASTER, RELEASE, jobs_dsv, nodes_dsv, nodes_text

TAKEN = datetime(2026, 12, 1, 8, tzinfo=UTC)
SITUATIONS = sorted(path.parent for path in MASTER.glob("*/pbsnodes_a.out"))
DSV = sorted(DATA.glob("openpbs-*/*/*_dsv.out"))

# What each node of a situation means, n1 to n4: idle, busy, unavailable.  Then the jobs
# that claim it, "@" when it is only planned for them, and who else does.
MEANINGS = {
    "01-idle": "i i i i",
    "02-one-running": "b:2 b:3 i i",
    "03-priority-pending": "b:4,@5,@6 b:4,@5,@7 b:4,@5,@7 b:4,@5",
    "03c-estimates-strict-false": "b:1187 b:1187 b:1187 b:1187",
    "03c-estimates-strict-true": (
        "b:1196,@1197,@1199,@1201 b:1196,@1197,@1199,@1201 b:1196,@1198,@1200 b:1196,@1198,@1200"
    ),
    "04-multichunk": "b:21,22 b:21 b:21 b:23",
    "05-array": "b:24[0],24[8],@24[],@25[] b:24[2],24[3] b:24[4],24[5] b:24[6],24[7]",
    "06-C-b-during": "b:55,@57 b:55,@57 b:56,@57 u:@57",
    "06-C-c-after": "b:55,@57 b:55,@57 b:56,@57 u:@57",
    "06-D-b-during": "b:49 b:49 b:50 i",
    "06-D-c-after": "b:51 b:51 b:51 b:51",
    "06-R-a-before": "b:46 b:46 b:47 i",
    "06-R-b-during": "b:46 b:46 b:47 i",
    "06-R-c-after": "b:48,@47 b:48,@46 b:48,@46 b:48",
    "06-S-b-during": "b:52,54 b:52,54 b:53,54 b:54",
    "06-S-c-after": "b:52,54 b:52,54 b:53,54 b:54",
    "06n-D-b-during": "b:34 b:34 i b:36",
    "06n-R-b-during": "b:26,@29 b:26,@29 b:27,@29 b:28,@29",
    "07-offline": "u:61,draining b:63 b:62 u:draining",
    "08-down": "u:61,draining b:63 u:62 u:draining",
    "08b-down-offline": "u:61,draining b:63 u:62 u:draining",
    "08c-node-comment": "u:61,draining b:63 u:62 u:draining",
    "09-held-suspended": "b:64 b:65 b:69 i",
    "09b-admin-suspend": "b:64 u:65,reserved b:69 i",
    "10-reservation": "u:reserved i i i",
    "10b-reservation-running": "u:reserved i i i",
    "14-vnodes": "i i i b:1205",
    "14b-vnode-offline": "i i i u:draining",
    "14c-vnodes-down": "i i i u:1205",
    "15-ckpt-b-after": "b:155,@153 b:155,@154 b:155 b:155",
    "15-ckpt-c-restarted": "b:153 b:154 i i",
}
LETTERS = {NodeState.IDLE: "i", NodeState.BUSY: "b", NodeState.UNAVAILABLE: "u"}


def short(path: Path) -> str:
    return str(path.relative_to(DATA))


def picture(folder: Path) -> dict[NodeName, Node]:
    text = nodes_dsv(nodes_text(folder))
    return dict(draw(parse_nodes(text), jobs_in(folder), {}, taken(folder)))


def taken(folder: Path) -> datetime:
    """Return when it was captured: the last moment in it that is no expected one."""
    text = "".join(read(path) for path in folder.glob("*_[af].out"))
    found = re.findall(
        r"^ +(?!estimated|Execution_Time)\S+ = \w{3} (Dec  1 \S+ 2026)$", text, re.MULTILINE
    )
    moments = [datetime.strptime(each, "%b %d %H:%M:%S %Y").replace(tzinfo=UTC) for each in found]
    return max(moments)


def jobs_in(folder: Path) -> tuple[JobRecord, ...]:
    path = folder / "qstat_f.out"
    return parse_jobs(jobs_dsv(read(path))) if path.exists() else ()


def told(node: Node) -> str:
    claims = []
    for claim in node.claims:
        number = re.search(r"(\d+(?:\[\d*\])?)\.vm$", claim.detail)
        mark = "@" if claim.source is ClaimSource.PLANNED else ""
        job = claim.source in {ClaimSource.PLANNED, ClaimSource.ALLOCATED}
        claims.append(f"{mark}{number[1]}" if number and job else claim.source.value)
    return LETTERS[node.state] + (":" if claims else "") + ",".join(claims)


def test_there_is_something_to_read() -> None:
    """
    A moved folder does not make every test here pass.
    """
    assert set(MEANINGS) == {path.name for path in SITUATIONS}
    assert len(DSV) >= 18


@pytest.mark.parametrize("folder", SITUATIONS, ids=short)
def test_each_situation_means_what_it_should(folder: Path) -> None:
    """
    Both answers of one look make the whole picture.
    """
    nodes = picture(folder)

    assert MEANINGS[folder.name] == " ".join(told(nodes[name]) for name in sorted(nodes))


@pytest.mark.parametrize("path", DSV, ids=short)
def test_what_was_printed_in_our_format_is_understood(path: Path) -> None:
    """
    Both clients' own lines, mangled bytes and unescaped separators included, are one record each.
    """
    text = read(path)
    if path.name.startswith("pbsnodes"):
        assert re.findall(r"^Name=([^|]*)", text, re.MULTILINE) == [
            vnode.name for vnode in parse_nodes(text)
        ]
    else:
        assert re.findall(r"^Job Id: ([^|]*)", text, re.MULTILINE) == [
            job.id for job in parse_jobs(text)
        ]


@pytest.mark.parametrize("situation", ["02-one-running", "07-offline", "08-down"])
def test_the_formats_say_the_same_of_nodes(situation: str) -> None:
    """
    What these tests make of the default format is what PBS prints in ours.
    """
    text = read(MASTER / situation / "pbsnodes_a.out")

    assert read(MASTER / situation / "pbsnodes_a_dsv.out") == nodes_dsv(text)


@pytest.mark.parametrize("situation", ["02-one-running", "03-priority-pending", "05-array"])
def test_the_formats_say_the_same_of_jobs(situation: str) -> None:
    """
    The same for jobs.
    """
    text = read(MASTER / situation / "qstat_f.out")

    assert read(MASTER / situation / "qstat_f_dsv.out") == jobs_dsv(text)


def test_the_jobs_of_an_array_run_where_each_of_them_says() -> None:
    """
    With -t each has a line; one that has ended still names its node, and holds nothing.
    """
    text = read(MASTER / "05-array/qstat_ft_json.out")
    lines = [
        "|".join([f"Job Id: {name}", *_flat(attributes)])
        for name, attributes in json.loads(text)["Jobs"].items()
    ]
    jobs = {job.id: job for job in parse_jobs("\n".join(lines) + "\n")}
    held = {name for name, job in jobs.items() if job.vnodes}

    assert 108 == len(jobs)
    assert {f"24[{index}].vm" for index in (0, 2, 3, 4, 5, 6, 7, 8)} == held
    assert ("B", "X", ("n2",)) == (
        jobs["24[].vm"].state,
        jobs["24[1].vm"].state,
        jobs["24[2].vm"].vnodes,
    )


def _flat(attributes: dict[str, Any]) -> Iterator[str]:
    """Print attributes as the other format does, all but lists of variables."""
    for key, value in attributes.items():
        pairs = value.items() if isinstance(value, dict) else ()
        if key != "Variable_List":
            yield from (f"{key}.{name}={each}" for name, each in pairs)
            yield from () if pairs else (f"{key}={value}",)


def test_sizes_add_up_over_vnodes() -> None:
    """
    A host has what its vnodes have; one without cores adds none.
    """
    nodes = picture(MASTER / "14-vnodes")

    assert (8, 6144) == (nodes[NodeName("n4")].cpus, nodes[NodeName("n4")].memory_mib)
    assert (4, 8192) == (nodes[NodeName("n1")].cpus, nodes[NodeName("n1")].memory_mib)
    assert "free / job-exclusive / job-busy" == nodes[NodeName("n4")].words


def test_the_sums_of_hosts_are_doubted() -> None:
    """
    Without -v a host of several vnodes has no state; it is not used.
    """
    text = nodes_dsv(read(MASTER / "14-vnodes/pbsnodes_a.out"))
    nodes = draw(parse_nodes(text), (), {}, TAKEN)

    assert NodeState.UNKNOWN is nodes[NodeName("n4")].state
    assert NodeState.IDLE is nodes[NodeName("n1")].state


def test_a_reservation_says_when() -> None:
    """
    A node that is reserved for later is idle until then, as far as reservations go.
    """
    reservations = parse_reservations(read(RELEASE / "10-pbs_rstat_F.out"))
    begin = datetime(2026, 12, 1, 7, 3, 25, tzinfo=UTC)
    assert {"R70.vm": begin} == reservations

    vnodes = parse_nodes(nodes_dsv(read(MASTER / "10-reservation/pbsnodes_a.out")))
    for taken, state in ((begin.replace(minute=2), "i"), (begin, "u")):
        node = draw(vnodes, (), reservations, taken)[NodeName("n1")]
        (claim,) = node.claims
        assert state == LETTERS[node.state]
        assert (ClaimSource.RESERVED, begin, "reservation R70.vm") == (
            claim.source,
            claim.at if state == "i" else begin,
            claim.detail,
        )


def test_a_dead_server_prints_nothing_on_stdout() -> None:
    """
    Only the exit status and stderr tell silence from an empty cluster.
    """
    folder = RELEASE / "17-server-down"

    assert "" == read(folder / "qstat.out")
    assert "cannot connect to server" in read(folder / "qstat.err")
    assert "255" == read(folder / "qstat.rc").strip()
