"""Slurm's words, lists and lines, one by one."""

from datetime import UTC, datetime

import pytest

from adapters.base import UnparsableError
from adapters.slurm.parse import JobRecord, NodeRecord, expand, parse_jobs, parse_nodes
from adapters.slurm.picture import draw
from adapters.slurm.words import judge, wanted
from daemon.core.types import ClaimSource, NodeName, NodeState

TAKEN = datetime(2026, 12, 1, tzinfo=UTC)
N1 = NodeName("n1")


def node_line(name: str = "n1", state: str = "IDLE", cpu: int = 0, mib: int = 0) -> str:
    return (
        f"NodeName={name} Arch=x86_64 CPUAlloc={cpu} CPUEfctv=3 CPUTot=4 OS=Linux 6.1 #1 SMP"
        f" RealMemory=4000 AllocMem={mib} MemSpecLimit=500 State={state} ThreadsPerCore=1"
        " Partitions=a,b  BootTime=1\n"
    )


def record(state: str = "IDLE", *, cpu: int = 0, mib: int = 0) -> NodeRecord:
    (found,) = parse_nodes(node_line(state=state, cpu=cpu, mib=mib))
    return found


@pytest.mark.parametrize(
    ("words", "state"),
    [
        ("IDLE", NodeState.IDLE),
        ("IDLE+CLOUD", NodeState.IDLE),
        ("IDLE+DYNAMIC_NORM", NodeState.IDLE),
        ("IDLE+CLOUD+DYNAMIC_NORM", NodeState.IDLE),
        ("IDLE+DRAIN", NodeState.UNAVAILABLE),
        ("IDLE+PLANNED", NodeState.UNAVAILABLE),
        ("IDLE+COMPLETING", NodeState.BUSY),
        ("IDLE+COMPLETING+PLANNED", NodeState.BUSY),
        ("ALLOCATED+PLANNED", NodeState.BUSY),
        ("MIXED+CLOUD+POWERED_DOWN", NodeState.UNAVAILABLE),
        ("IDLE+CLOUD+NOT_RESPONDING+POWERING_UP", NodeState.UNAVAILABLE),
        ("IDLE+DYNAMIC_NORM+MAINTENANCE+RESERVED+PLANNED", NodeState.UNAVAILABLE),
        ("IDLE+CLOUD+POWER_DOWN", NodeState.UNAVAILABLE),
        ("IDLE+BLOCKED", NodeState.BUSY),
        ("IDLE+REBOOT_ISSUED", NodeState.UNAVAILABLE),
        ("DOWN+NOT_RESPONDING", NodeState.UNAVAILABLE),
        ("FUTURE", NodeState.UNAVAILABLE),
        ("IDLE+SOMETHING_NEW", NodeState.UNKNOWN),
        ("IDLE+DRAIN+SOMETHING_NEW", NodeState.UNKNOWN),
        ("UNKNOWN", NodeState.UNKNOWN),
        ("UNKNOWN+DRAIN+INVALID_REG", NodeState.UNKNOWN),
        ("BRAND_NEW", NodeState.UNKNOWN),
        ("", NodeState.UNKNOWN),
        # How sinfo prints them: not what was asked for, so not understood.
        *((f"idle{suffix}", NodeState.UNKNOWN) for suffix in ("", *"*~#!%$@^-")),
        *((f"IDLE{suffix}", NodeState.UNKNOWN) for suffix in "*~#!%$@^-"),
        *((word, NodeState.UNKNOWN) for word in ("planned", "resv", "maint", "drng", "mixed-")),
    ],
)
def test_words(words: str, state: NodeState) -> None:
    """
    The whole notation of ``scontrol show node``, and nothing of another.
    """
    assert state is judge(words)


def test_flags_say_who_wants_the_node() -> None:
    """
    Everything that takes a node away soon is a claim; silence is none.
    """
    assert {} == wanted("IDLE+NOT_RESPONDING")
    assert {ClaimSource.DRAINING: "to be switched off"} == wanted("IDLE+CLOUD+POWER_DOWN")
    assert {ClaimSource.RESERVED: "maintenance, reserved"} == wanted("IDLE+MAINTENANCE+RESERVED")
    assert {ClaimSource.DRAINING, ClaimSource.RESERVED} == set(wanted("IDLE+DRAIN+RESERVED"))


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3,7]", ["n1", "n2", "n3", "n7"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("a1,b[2-3]c,d", ["a1", "b2c", "b3c", "d"]),
        ("n[1-3]-ib", ["n1-ib", "n2-ib", "n3-ib"]),
        ("n[1,3-4]x[0-1]y", ["n1x0y", "n1x1y", "n3x0y", "n3x1y", "n4x0y", "n4x1y"]),
        ("n[00001-10000]", [f"n{number:05}" for number in range(1, 10001)]),
        ("", []),
        ("(null)", []),
        ("None assigned", []),
        ("N/A", []),
    ],
)
def test_lists_of_nodes(expression: str, names: list[str]) -> None:
    """
    Brackets anywhere, padding, suffixes, and the ways to say none.
    """
    assert names == list(expand("squeue", expression))


@pytest.mark.parametrize(
    "expression",
    ["n[1-3", "n1,", "n[1-3],", ",n1", "n1,,n2", "n[3-1]", "n[1-", "n 1", "n]", "n[a]"],
)
def test_a_list_that_was_cut_is_refused(expression: str) -> None:
    """
    Half a list would leave the other nodes free.
    """
    with pytest.raises(UnparsableError):
        expand("squeue", expression)


def test_a_record_is_read() -> None:
    """
    What Slurm keeps for the system is not ours to count.
    """
    found = record("MIXED", cpu=2, mib=100)

    assert (N1, "MIXED") == (found.name, found.words)
    assert (3, 3500) == (found.cpus, found.memory_mib)
    assert (2, 100) == (found.allocated_cpus, found.allocated_mib)
    assert ("a", "b") == found.partitions


def test_no_nodes_is_no_error() -> None:
    """
    What an empty list means is not the parser's to say.
    """
    assert () == parse_nodes("")
    assert () == parse_nodes("No nodes in the system\n")


@pytest.mark.parametrize("key", ["CPUAlloc", "CPUTot", "RealMemory", "AllocMem", "State"])
def test_a_record_without_a_key_is_refused(key: str) -> None:
    """
    The error says which key, in which line, and shows the line.
    """
    text = node_line("n0") + node_line().replace(f" {key}=", " Else=")
    with pytest.raises(UnparsableError, match=f"line 2 has no {key}: 'NodeName=n1 ") as caught:
        parse_nodes(text)
    assert "scontrol show node --all --oneliner" == caught.value.command


def test_a_reason_that_looks_like_a_node_is_not_believed() -> None:
    """
    Two records of one name contradict each other: the node is unknown, the others stand.
    """
    forged = node_line("n1", "IDLE+DRAIN")[:-1] + " Reason=x\n" + node_line("n1", "IDLE")
    nodes = draw(parse_nodes(forged + node_line("n2")), (), TAKEN)

    assert NodeState.UNKNOWN is nodes[N1].state
    assert "contradicts itself" == nodes[N1].words
    assert NodeState.IDLE is nodes[NodeName("n2")].state


def test_the_lines_of_a_reason_are_skipped() -> None:
    """
    A reason may go on over lines; a stray line elsewhere is an error.
    """
    told = node_line("n1", "IDLE+DRAIN")[:-1] + " Reason=x\n second line\n"

    assert 2 == len(parse_nodes(told + node_line("n2")))
    with pytest.raises(UnparsableError, match="line 2 is no node"):
        parse_nodes(node_line("n1") + "slurm_load_node: something\n")


def test_a_state_in_a_reason_is_text() -> None:
    """
    Nothing after the first free text is read.
    """
    (found,) = parse_nodes(node_line("n1", "IDLE+DRAIN")[:-1] + " Reason=a State=IDLE CPUTot=x\n")

    assert "IDLE+DRAIN" == found.words


def test_a_state_told_twice_is_unknown() -> None:
    """
    Before any free text a key comes once, or the record is not what it seems.
    """
    assert "" == record("IDLE State=DOWN").words


def test_jobs_are_read() -> None:
    """
    Each state, with the nodes it holds or is planned on, and a moment or none.
    """
    text = (
        "1|RUNNING|1796117888|n[1-2]|(null)\n2|PENDING|1796118492||n3\n3|PENDING|N/A||(null)\n"
        "\nCLUSTER: other\n"
    )
    start, planned = (datetime.fromtimestamp(s, UTC) for s in (1796117888, 1796118492))
    n1, n2, n3 = map(NodeName, ("n1", "n2", "n3"))

    expected = (
        JobRecord(id="1", state="RUNNING", start=start, nodes=(n1, n2), planned=()),
        JobRecord(id="2", state="PENDING", start=planned, nodes=(), planned=(n3,)),
        JobRecord(id="3", state="PENDING", start=None, nodes=(), planned=()),
    )
    assert expected == parse_jobs(text)


@pytest.mark.parametrize(
    "line",
    [
        "slurm_load_jobs error: Unable to contact slurm controller",
        "1|RUNNING|2026-12-01T00:00:00|n1|",
        "1|RUNNING|99999999999999|n1|",
        "1|RUNNING|999999999999|n1|",
        "1|RUNNING|1|n1",
        "1|RUNNING|1|n1||",
        "x|RUNNING|1|n1|",
        "1|RUNNING|1|n[1|",
        "JOBID|STATE|START_TIME|NODELIST|SCHEDNODES",
    ],
)
def test_a_line_that_is_no_job_is_refused(line: str) -> None:
    """
    No user writes into these columns, so a strange line is not one lost job but a lost answer.
    """
    with pytest.raises(UnparsableError, match="squeue"):
        parse_jobs(f"{line}\n")


@pytest.mark.parametrize(
    ("state", "holds"),
    [
        ("RUNNING", True),
        ("SUSPENDED", True),
        ("COMPLETING", True),
        ("CONFIGURING", True),
        ("STOPPED", True),
        ("SOMETHING_NEW", True),
        ("PENDING", False),
        ("COMPLETED", False),
        ("NODE_FAIL", False),
    ],
)
def test_which_jobs_hold_their_nodes(state: str, holds: bool) -> None:
    """
    A node that was idle a moment before is busy when a job is listed on it.
    """
    jobs = parse_jobs(f"7|{state}|1796117888|n1|(null)\n")
    node = draw([record()], jobs, TAKEN)[N1]

    assert (NodeState.BUSY if holds else NodeState.IDLE) is node.state
    assert (["priority job 7"] if holds else []) == [claim.detail for claim in node.claims]


@pytest.mark.parametrize(("cpu", "mib"), [(4, 0), (0, 1)])
def test_the_sums_of_a_node_count(cpu: int, mib: int) -> None:
    """
    Jobs that we may not see still use cores and memory.
    """
    node = draw([record(cpu=cpu, mib=mib)], (), TAKEN)[N1]

    assert NodeState.BUSY is node.state
    assert [(ClaimSource.ALLOCATED, TAKEN)] == [(c.source, c.at) for c in node.claims]


def test_planned_without_a_job_is_wanted_now() -> None:
    """
    Nobody can say when, so it is as if at once.
    """
    (claim,) = draw([record("IDLE+PLANNED")], (), TAKEN)[N1].claims

    assert (ClaimSource.PLANNED, TAKEN) == (claim.source, claim.at)


def test_an_expected_start_is_a_claim_without_a_flag() -> None:
    """
    Slurm sets the flag for the nearest starts only; the expectation is there before.
    """
    jobs = parse_jobs("7|PENDING|1800000000||n[1-2]\n8|PENDING|N/A||n1\n")
    node = draw([record()], jobs, TAKEN)[N1]

    assert NodeState.IDLE is node.state
    assert [datetime.fromtimestamp(1_800_000_000, UTC)] == [claim.at for claim in node.claims]
