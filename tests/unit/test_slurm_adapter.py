"""The Slurm adapter on commands that fail in every way that was reported."""

import re
import shlex
from datetime import UTC, datetime
from pathlib import Path

import pytest

from adapters.base import UnparsableError, UnreachableError
from adapters.slurm.adapter import SlurmAdapter, SlurmSettings
from adapters.slurm.parse import CONFIG, JOBS, NODES, RESERVATIONS, VERSION
from daemon.core.types import ClaimSource, NodeName, NodeState
from tests.unit.scripts import Scripts

DATA = Path(__file__).parents[1] / "data/slurm-22.05.8/look"
RESERVED = DATA.parent / "07-reservation/scontrol_show_reservation.out"
NOW = datetime(2026, 12, 1, 8, tzinfo=UTC)
DOWN = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
TIMED_OUT = "slurm_load_jobs error: Socket timed out on send/recv operation"


class FixedClock:
    """It is always the same moment."""

    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return 0.0

    def wait(self, seconds: float) -> None:
        raise AssertionError("nobody should wait")


class Programs(Scripts):
    """A folder with a scontrol and a squeue that print what a real one printed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.say("squeue", f"cat {DATA}/allocated/squeue.out")
        self.say(
            "scontrol",
            f'case "$*" in *reservation*) cat {RESERVED};;'
            f" *node*) cat {DATA}/allocated/scontrol_show_node.out;;"
            f" *config*) cat {DATA}/idle/config.out;; *) cat {DATA}/idle/version.out;; esac",
        )


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


@pytest.fixture
def adapter(programs: Programs) -> SlurmAdapter:
    settings = SlurmSettings(bin_dir=str(programs.folder), timeout_seconds=5)
    return SlurmAdapter(settings, FixedClock())


def test_a_look_is_two_commands(adapter: SlurmAdapter, programs: Programs) -> None:
    """
    The version is asked for once, then each look costs the controller two questions.

    Now and then reservations are asked for instead of jobs, but not twice in a row.
    """
    assert "" == adapter.version
    for _ in range(11):
        adapter.look()
    cluster = adapter.look()

    assert NOW == cluster.taken
    assert "22.05.8" == adapter.version
    assert NodeState.BUSY is cluster.nodes[NodeName("n1")].state
    look = [" ".join(NODES), " ".join(JOBS)]
    other = [" ".join(NODES), " ".join(RESERVATIONS)]
    expected = look + other + look * 8 + other + look
    assert [" ".join(VERSION), *expected] == programs.calls()


def test_a_reservation_to_come_is_a_claim_with_a_time(adapter: SlurmAdapter) -> None:
    """
    Slurm flags nodes of reservations that are on; of the others only the list tells.
    """
    adapter.look()
    nodes = adapter.look().nodes
    begin = datetime.fromisoformat(re.findall(r"=later StartTime=(\S+)", RESERVED.read_text())[0])
    found = {
        (claim.detail, claim.at)
        for node in nodes.values()
        for claim in node.claims
        if claim.source is ClaimSource.RESERVED
    }

    assert {("reservation later", begin.replace(tzinfo=UTC))} == found
    assert NodeState.IDLE is nodes[NodeName("n4")].state


def test_who_a_node_is_planned_for_is_asked_first(
    adapter: SlurmAdapter, programs: Programs
) -> None:
    """
    A node that has just been planned is not taken for one that is wanted at once.
    """
    adapter.look()
    planned = f"{DATA}/planned/scontrol_show_node.out"
    programs.say("scontrol", f"cat {planned}")
    programs.say("squeue", f"cat {DATA}/planned/squeue.out")
    (claim,) = adapter.look().nodes[NodeName("n2")].claims

    assert ClaimSource.PLANNED is claim.source
    assert " ".join(JOBS) == programs.calls()[-1]


def test_only_our_own_environment_is_there(
    adapter: SlurmAdapter, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Variables that change what the commands print do not reach them.
    """
    for name in ("SLURM_CLUSTERS", "SQUEUE_STATES", "SQUEUE_FORMAT", "SLURM_JSON", "SLURM_CONF"):
        monkeypatch.setenv(name, "other")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    programs.say("squeue", f"env > {programs.folder}/env")
    adapter.look()

    lines = (programs.folder / "env").read_text().splitlines()
    assert "SLURM_TIME_FORMAT=%s" in lines
    assert not [line for line in lines if "other" in line]


def test_the_configuration_of_the_site_is_named(programs: Programs) -> None:
    """
    SLURM_CONF is what the settings say.
    """
    settings = SlurmSettings(bin_dir=str(programs.folder), conf="/etc/other/slurm.conf")
    programs.say("squeue", f"env > {programs.folder}/env")
    SlurmAdapter(settings, FixedClock()).look()

    assert "SLURM_CONF=/etc/other/slurm.conf\n" in (programs.folder / "env").read_text()


FAILURES = pytest.mark.parametrize(
    ("script", "told"),
    [
        (f"echo {shlex.quote(DOWN)} >&2; exit 1", "Unable to contact slurm controller"),
        (f"echo {shlex.quote(TIMED_OUT)} >&2; exit 0", "Socket timed out"),
        ("exit 1", "exited with 1"),
        ("echo 'Invalid node name'; exit 1", "Invalid node name"),
        ("kill -9 $$", "exited with -9"),
    ],
)


@FAILURES
def test_a_failure_is_no_answer(
    adapter: SlurmAdapter, programs: Programs, script: str, told: str
) -> None:
    """
    A bad exit status or a word on stderr means that nothing was learnt.
    """
    adapter.look()
    programs.say("scontrol", script)

    with pytest.raises(UnreachableError, match=told):
        adapter.look()


@FAILURES
def test_without_the_jobs_the_answer_is_partial(
    adapter: SlurmAdapter, programs: Programs, script: str, told: str
) -> None:
    """
    Nodes in use are wanted as ever, with the claims that were known; none is idle any more.
    """
    adapter.look()
    before = adapter.look().nodes
    programs.say("squeue", script)
    found = adapter.look()

    assert told in found.partial
    assert NodeState.IDLE not in {node.state for node in found.nodes.values()}
    assert {n: node.claims for n, node in before.items()} == {
        n: node.claims for n, node in found.nodes.items()
    }
    assert NodeState.BUSY is found.nodes[NodeName("n1")].state
    assert NodeState.UNKNOWN is found.nodes[NodeName("n4")].state

    programs.say("squeue", f"cat {DATA}/allocated/squeue.out")
    again = adapter.look()
    assert ("", before) == (again.partial, again.nodes)


@pytest.mark.parametrize("end", ["exit 0", "kill -9 $$"])
def test_half_an_answer_is_none(adapter: SlurmAdapter, programs: Programs, end: str) -> None:
    """
    A command that dies while it prints does not make nodes or jobs vanish.
    """
    adapter.look()
    adapter.look()
    for program, file in (("squeue", "squeue.out"), ("scontrol", "scontrol_show_node.out")):
        half = (DATA / "allocated" / file).stat().st_size // 2
        programs.say(program, f"head -c {half} {DATA}/allocated/{file}; {end}")
        if program == "squeue":
            assert adapter.look().partial
        else:
            with pytest.raises((UnreachableError, UnparsableError)):
                adapter.look()


def test_a_hanging_command_is_no_answer(programs: Programs) -> None:
    """
    It ends after the time-out, and says so.
    """
    programs.say("squeue", "exec sleep 300")
    settings = SlurmSettings(bin_dir=str(programs.folder), timeout_seconds=0.5)
    adapter = SlurmAdapter(settings, FixedClock())
    assert "squeue gave no answer within 0.5 s" == adapter.look().partial

    programs.say("scontrol", 'case "$*" in *node*) exec sleep 300;; esac; echo slurm 22.05.8')
    with pytest.raises(UnreachableError, match=r"scontrol gave no answer within 0\.5 s"):
        SlurmAdapter(settings, FixedClock()).look()


def test_an_empty_queue_is_an_answer(adapter: SlurmAdapter, programs: Programs) -> None:
    """
    No jobs is a fact; the nodes' own words still count.
    """
    programs.say("squeue", "exit 0")
    cluster = adapter.look()

    assert NodeState.BUSY is cluster.nodes[NodeName("n1")].state
    assert NodeState.IDLE is cluster.nodes[NodeName("n4")].state


@pytest.mark.parametrize("text", ["", "No nodes in the system"])
def test_an_empty_list_of_nodes_is_no_answer(
    adapter: SlurmAdapter, programs: Programs, text: str
) -> None:
    """
    A batch system without nodes is one that did not answer.
    """
    adapter.look()
    programs.say("scontrol", f"printf '{text}\\n'")

    with pytest.raises(UnreachableError, match="lists no nodes"):
        adapter.look()


def test_another_language_is_told_from_silence(adapter: SlurmAdapter, programs: Programs) -> None:
    """
    What cannot be read names the command and shows a sample.
    """
    programs.say("squeue", "echo '{\"jobs\": []}'")
    assert adapter.look().partial.startswith("squeue answered what stopgap cannot read")

    programs.say("scontrol", "echo slurm 22.05.8")
    with pytest.raises(UnparsableError, match=r"scontrol .*answered .*slurm"):
        adapter.look()


def test_no_slurm_at_all_is_told(tmp_path: Path) -> None:
    """
    A wrong directory is named.
    """
    adapter = SlurmAdapter(SlurmSettings(bin_dir=str(tmp_path)), FixedClock())

    with pytest.raises(UnreachableError, match=f"no program scontrol in {tmp_path}"):
        adapter.look()


def test_the_findings_come_from_the_configuration(
    adapter: SlurmAdapter, programs: Programs
) -> None:
    """
    One more command, only when asked for.
    """
    assert () == adapter.findings()
    assert " ".join(CONFIG) == programs.calls()[-1]
