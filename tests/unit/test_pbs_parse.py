"""PBS's text, line by line: what is understood, and what is refused."""

from datetime import UTC, datetime

import pytest

from adapters.base import UnparsableError
from adapters.pbs import words
from adapters.pbs.parse import parse_jobs, parse_nodes, parse_reservations
from adapters.pbs.picture import draw
from adapters.pbs.site import parse_hooks, parse_mom, parse_server, parse_version
from adapters.pbs.values import fields, mib, moment, vnodes
from daemon.core.types import ClaimSource, Node, NodeName, NodeState

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
TORQUE = "Version: 6.1.2\nCommit: 661e092552de43a785c15d39a3634a541d86898e\n"


def line(name: str = "n1", **changes: str) -> str:
    """Print a free node of four cores, with changes; __ is a dot, an empty value none at all."""
    pairs = {
        "Name": name,
        "Mom": name.split("[", maxsplit=1)[0],
        "state": "free",
        "resources_available.host": name.split("[", maxsplit=1)[0],
        "resources_available.mem": "8gb",
        "resources_available.ncpus": "4",
        "resources_assigned.ncpus": "0",
        "resources_assigned.mem": "0kb",
    }
    pairs |= {key.replace("__", "."): value for key, value in changes.items()}
    return "|".join(f"{key}={value}" for key, value in pairs.items() if value) + "\n"


def job(name: str = "7.vm", **changes: str) -> str:
    pairs = {"job_state": "R", "stime": "Tue Dec  1 06:51:02 2026", "exec_vnode": "(n1:ncpus=4)"}
    pairs |= {key.replace("__", "."): value for key, value in changes.items()}
    rest = "|".join(f"{key}={value}" for key, value in pairs.items() if value)
    return f"Job Id: {name}|{rest}\n"


def node(text: str, jobs: str = "") -> Node:
    return draw(parse_nodes(text), parse_jobs(jobs), {}, NOW)[NodeName("n1")]


@pytest.mark.parametrize(
    ("state", "meaning"),
    [
        ("free", NodeState.IDLE),
        ("job-busy", NodeState.BUSY),
        ("job-exclusive", NodeState.BUSY),
        ("job-sharing", NodeState.BUSY),
        ("free,resv-exclusive", NodeState.UNAVAILABLE),
        ("free,offline", NodeState.UNAVAILABLE),
        ("down,offline", NodeState.UNAVAILABLE),
        ("down,job-busy", NodeState.UNAVAILABLE),
        ("Stale", NodeState.UNAVAILABLE),
        ("busy", NodeState.UNAVAILABLE),
        ("sleep", NodeState.UNAVAILABLE),
        ("provisioning", NodeState.UNAVAILABLE),
        ("wait-provisioning", NodeState.UNAVAILABLE),
        ("initializing", NodeState.UNAVAILABLE),
        ("unresolvable", NodeState.UNAVAILABLE),
        ("offline_by_mom", NodeState.UNAVAILABLE),
        ("maintenance", NodeState.UNAVAILABLE),
        ("state-unknown", NodeState.UNKNOWN),
        ("state-unknown,down", NodeState.UNKNOWN),
        ("<various>", NodeState.UNKNOWN),
        ("free,something-new", NodeState.UNKNOWN),
        ("something-new", NodeState.UNKNOWN),
        ("freely", NodeState.UNKNOWN),
    ],
)
def test_only_free_alone_is_idle(state: str, meaning: NodeState) -> None:
    """
    Whatever stands beside it, or is not known, is not used.
    """
    assert meaning is node(line(state=state)).state


@pytest.mark.parametrize(
    "changes",
    [
        {"jobs": "12.srv/0"},
        {"resources_assigned__ncpus": "1"},
        {"resources_assigned__mem": "512000kb"},
        {"resources_assigned__ngpus": "1"},
    ],
)
def test_free_is_not_idle(changes: dict[str, str]) -> None:
    """
    A node that takes more jobs may have some: it is busy as soon as anything is given away.
    """
    found = node(line(**changes))

    assert NodeState.BUSY is found.state
    assert [ClaimSource.ALLOCATED] == [claim.source for claim in found.claims]


@pytest.mark.parametrize("value", ["", "0", "0b", "0kb", "0mb", "00:00:00"])
def test_nothing_assigned_is_told_in_many_ways(value: str) -> None:
    """
    A missing amount is none.
    """
    assert NodeState.IDLE is node(line(resources_assigned__mem=value)).state


def test_a_host_is_what_its_vnodes_are_together() -> None:
    """
    One that is in use or closed is enough; one without cores counts too.
    """
    free = line("n1", resources_available__ncpus="0") + line("n1[0]")
    assert NodeState.IDLE is node(free + line("n1[1]")).state
    assert NodeState.BUSY is node(free + line("n1[1]", jobs="3.s/0")).state
    assert NodeState.UNAVAILABLE is node(free + line("n1[1]", state="offline")).state
    assert NodeState.UNKNOWN is node(free + line("n1[1]", state="new")).state
    assert NodeState.UNAVAILABLE is node(line("n1", state="down") + line("n1[0]")).state


def test_a_suspended_job_holds_its_node() -> None:
    """
    PBS takes it out of the node's lists; its memory is still there.
    """
    found = node(line(), job(job_state="S"))

    assert NodeState.BUSY is found.state
    assert ["priority job 7.vm"] == [claim.detail for claim in found.claims]


@pytest.mark.parametrize("state", ["R", "E", "S", "U", "Z"])
def test_every_other_letter_holds_nodes(state: str) -> None:
    """
    A letter that is not known holds what is listed with it.
    """
    assert NodeState.BUSY is node(line(), job(job_state=state)).state


@pytest.mark.parametrize("state", ["Q", "H", "W", "F", "M", "X", "T"])
def test_a_job_that_waits_or_has_ended_holds_nothing(state: str) -> None:
    """
    A checkpointed job keeps the name of its node, and nothing else.
    """
    assert NodeState.IDLE is node(line(), job(job_state=state)).state


def test_an_expected_start_is_a_claim_with_a_time() -> None:
    """
    A held job's, or one without a time, is none.
    """
    when = {"estimated__exec_vnode": "(n1:ncpus=4)"}
    known = when | {"estimated__start_time": "Tue Dec  1 13:30:03 2026"}
    found = node(line(), job(job_state="Q", exec_vnode="", **known))

    assert NodeState.UNAVAILABLE is found.state
    assert [(ClaimSource.PLANNED, datetime(2026, 12, 1, 13, 30, 3, tzinfo=UTC))] == [
        (claim.source, claim.at) for claim in found.claims
    ]
    assert () == node(line(), job(job_state="H", exec_vnode="", **known)).claims
    assert () == node(line(), job(job_state="Q", exec_vnode="", **when)).claims
    assert () == node(line(), job(job_state="Q", exec_vnode="", topjob="False", **known)).claims


def test_an_expected_start_that_is_long_over_is_outdated() -> None:
    """
    PBS leaves it on a job that is not among the first any more.
    """
    for start, claims in (("11:50:03", 1), ("11:40:03", 0)):
        when = {
            "estimated__exec_vnode": "(n1:ncpus=4)",
            "estimated__start_time": f"Tue Dec  1 {start} 2026",
        }
        found = node(line(), job(job_state="Q", exec_vnode="", **when))
        assert claims == len(found.claims)
        assert (NodeState.UNAVAILABLE if claims else NodeState.IDLE) is found.state


def test_busy_by_its_load_is_a_claim() -> None:
    """
    PBS starts nothing on such a node, and the load may be ours.
    """
    (claim,) = node(line(state="busy")).claims

    assert ClaimSource.DRAINING is claim.source


def test_where_nodes_belong() -> None:
    """
    A queue of their own, a Qlist and a scheduler's partition are partitions.
    """
    assert ("pbs-default",) == node(line()).partitions
    text = line(
        resources_available__Qlist="a,b", queue="q", comment="x|partition=no", partition="p"
    )
    assert ("q", "a", "b", "p") == node(text).partitions
    assert ("bigmem",) == node(line(resources_available__bigmem="True")).features


@pytest.mark.parametrize(
    "comment",
    [
        "a|state=free|jobs=",
        "x\nName=n1|state=free",
        "x\nName=n2|state=free|resources_available.host=n2",
        "x\n\nanything",
        '\udcff "q" \\',
    ],
)
def test_a_comment_forges_no_idle_node(comment: str) -> None:
    """
    An operator's text makes no node look free, newlines and separators included.
    """
    text = line(state="offline", comment=comment) + line("n2", state="job-busy", jobs="1.s/0")
    nodes = draw(parse_nodes(text), (), {}, NOW)

    assert {"n1", "n2"} == set(nodes)
    assert NodeState.IDLE not in {each.state for each in nodes.values()}


def test_a_node_listed_twice_is_not_known() -> None:
    """
    Two records of one name contradict each other.
    """
    found = node(line() + line())

    assert NodeState.UNKNOWN is found.state
    assert "contradicts itself" == found.words
    assert NodeState.UNKNOWN is node(line().replace("state=free", "state=free|state=free")).state


@pytest.mark.parametrize(
    "text",
    [
        "Name=n1|state=free",
        "n1\n     state = free\n",
        '{"nodes":{}}\n',
        line(state=""),
        line(resources_available__ncpus="four"),
        line(resources_available__mem="much"),
        line("n1/../.."),
        line(jobs="rm -rf/0"),
        line(resources_available__host="a b"),
    ],
)
def test_other_text_about_nodes_is_refused(text: str) -> None:
    """
    What is not understood is an error, and not an empty cluster.
    """
    with pytest.raises(UnparsableError):
        parse_nodes(text)


@pytest.mark.parametrize(
    "text",
    [
        job().rstrip("\n"),
        "Job Id: 1.vm\n    job_state = R\n",
        '{"Jobs":{}}\n',
        job(job_state=""),
        job(exec_vnode=""),
        job(exec_vnode="(n1:ncpus"[:1]),
        job("x"),
        job(job_state="Q", estimated__exec_vnode="?"),
    ],
)
def test_other_text_about_jobs_is_refused(text: str) -> None:
    """
    A job that holds nodes and does not say which is not overlooked.
    """
    with pytest.raises(UnparsableError):
        parse_jobs(text)


@pytest.mark.parametrize(
    "text",
    [
        r"a\|job_state=F\|exec_vnode=(n9:ncpus=1)",
        r"trailing\\",
        r"\\\|job_state=Q",
        "\udcff\udcfe",
        "^\x03^\udcf6",
        "^\nJob Id: 9.vm|job_state=R|exec_vnode=(n2:ncpus=4)|x=",
        "^\nJob Id: nonsense",
        "^\nanything at all",
    ],
)
def test_users_hide_no_job(text: str) -> None:
    """
    Whatever somebody writes into an earlier field, the job is still seen where it runs.
    """
    written = job().replace("|job_state=", f"|Error_Path={text}|job_state=", 1)
    records = parse_jobs(written + job("8.vm", exec_vnode="(n3:ncpus=1)"))
    seen = {(record.id, record.vnodes) for record in records}

    assert {("7.vm", ("n1",)), ("8.vm", ("n3",))} <= seen


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a|b", ["a", "b"]),
        (r"a\|b|c", [r"a\|b", "c"]),
        (r"a\\|b", [r"a\\", "b"]),
        (r"a\\\|b|c", [r"a\\\|b", "c"]),
        (r"a\,b|c", [r"a\,b", "c"]),
        ("a\\", ["a\\"]),
    ],
)
def test_fields_end_where_pbs_ends_them(text: str, parts: list[str]) -> None:
    """
    A backslash before a separator is either the value's own, doubled, or an escape.
    """
    assert parts == [part for part in fields(text) if part]


def test_chunks_are_taken_apart() -> None:
    """
    Of chunks over vnodes, of hosts alone, each once.
    """
    assert ("n1", "n2[0]", "n2[1]") == vnodes("(n1:ncpus=4:mem=1kb)+(n2[0]:ncpus=2+n2[1]:ncpus=2)")
    assert ("n1", "n2") == vnodes("n1/0*4+n2/0+n1/3")


def test_sizes_and_moments() -> None:
    """
    Units and blanks as PBS prints them; what is no moment is none.
    """
    assert [8192, 500, 3072, 0, 8, 1024 * 1024] == [
        mib(text) for text in ("8gb", "500mb", "3145728kb", "0b", "1mw", "1tb")
    ]
    assert datetime(2026, 12, 1, 7, 3, 5, tzinfo=UTC) == moment("Tue Dec  1 07:03:05 2026")
    assert datetime(2026, 12, 1, 7, 3, 5, tzinfo=UTC) == moment("Tue Dec 01 07:03:05 2026")
    assert None is moment("UNKNOWN") is moment("Tue Dec 41 07:03:05 2026") is moment("")


def test_a_reservations_begin_is_the_earliest_that_is_told() -> None:
    """
    A name that looks like a later begin hides nothing.
    """
    text = (
        "Resv ID: R1.vm\nReserve_Name = x\nreserve_start = Tue Dec 01 09:00:00 2037\n"
        "reserve_start = Tue Dec 01 09:00:00 2026\n\n"
    )
    assert {"R1.vm": datetime(2026, 12, 1, 9, tzinfo=UTC)} == parse_reservations(text)
    assert {} == parse_reservations("")
    with pytest.raises(UnparsableError):
        parse_reservations("Resv ID: R1.vm\n\n")
    with pytest.raises(UnparsableError):
        parse_reservations("Resv ID: ../x\nreserve_start = Tue Dec 01 09:00:00 2026\n")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("pbs_version = 23.06.06\n", "23.06.06"),
        ("pbs_version = 20.0.1\n", "20.0.1"),
        ("pbs_version = 2022.1.1.20220509131100\n", "2022.1.1.20220509131100"),
        ("pbs_version = 19.1.3\n", "19.1.3"),
    ],
)
def test_versions_of_pbs_are_found(text: str, version: str) -> None:
    """
    OpenPBS and PBS Pro call themselves alike.
    """
    assert version == parse_version(text)


@pytest.mark.parametrize("text", [TORQUE, "version: 4.2.10\n", "TORQUE something\n"])
def test_torque_is_told_from_pbs(text: str) -> None:
    """
    Its commands have the same names, and other answers.
    """
    with pytest.raises(UnparsableError, match=r"this is Torque.* speaks OpenPBS"):
        parse_version(text)


def test_no_version_is_no_pbs() -> None:
    """
    Anything else is shown as it is.
    """
    with pytest.raises(UnparsableError, match="usage: pbsnodes"):
        parse_version("usage: pbsnodes [-s server]\n")


def test_what_the_site_says_is_read() -> None:
    """
    The server's attributes, the hooks and a MoM's settings.
    """
    assert "False" == parse_server("Server: vm|query_other_jobs=False\n")["query_other_jobs"]
    hooks = parse_hooks("Hook a\n    type = site\n    event = execjob_begin\n\nHook b\n    x = y\n")
    assert {"a": {"type": "site", "event": "execjob_begin"}, "b": {"x": "y"}} == hooks
    assert {"restrict_user": "True"} == parse_mom("$restrict_user True\n# $max_load 3\n$x\n")


def test_every_word_has_a_meaning() -> None:
    """
    Only one word of all is idle, and none that claims a node leaves it idle.
    """
    assert ["free"] == [w for w, each in words.WORDS.items() if each.state is NodeState.IDLE]
    assert all(each.said for each in words.WORDS.values() if each.source is not None)
