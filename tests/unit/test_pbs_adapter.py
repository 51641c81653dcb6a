"""The PBS adapter on commands that fail in every way that was reported."""

import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from adapters.base import UnparsableError, UnreachableError
from adapters.pbs.adapter import PbsAdapter, PbsSettings
from adapters.pbs.examine import Asked, findings
from adapters.pbs.parse import JOBS, NODES, RESERVATIONS
from adapters.pbs.site import HOOKS, SERVER, VERSION
from daemon.core.types import ClaimSource, NodeName, NodeState
from tests.contract.clock import ManualClock
from tests.unit.captured import read
from tests.unit.pbs_text import MASTER, RELEASE, nodes_dsv
from tests.unit.scripts import Scripts

DATA = MASTER / "02-one-running"
DOWN = RELEASE / "17-server-down"
N1 = NodeName("n1")


class Programs(Scripts):
    """A folder with PBS's commands, which print what real ones printed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.say(
            "pbsnodes",
            f"case $1 in --version) echo 'pbs_version = 23.06.06';; *) cat {folder}/nodes;; esac",
        )
        self.nodes(read(DATA / "pbsnodes_a_dsv.out"))
        self.say(
            "qstat",
            f"case $* in *-B*) cat {folder}/server;; *) cat {DATA}/qstat_f_dsv.out;; esac",
        )
        (folder / "server").write_text("Server: vm|query_other_jobs=True|pbs_version=23.06.06\n")
        self.say("pbs_rstat", f"cat {RELEASE}/10-pbs_rstat_F.out")
        self.say("qmgr", "exit 0")

    def nodes(self, text: str) -> None:
        (self.folder / "nodes").write_bytes(text.encode("utf-8", "surrogateescape"))


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def adapter(programs: Programs, clock: ManualClock) -> PbsAdapter:
    return PbsAdapter(PbsSettings(bin_dir=str(programs.folder), timeout_seconds=5), clock)


def test_a_look_is_two_commands(
    adapter: PbsAdapter, programs: Programs, clock: ManualClock
) -> None:
    """
    The version is asked for once, then each look costs the server two questions.
    """
    assert "" == adapter.version
    adapter.look()
    adapter.look()
    cluster = adapter.look()

    assert clock.now() == cluster.taken
    assert "23.06.06" == adapter.version
    assert NodeState.BUSY is cluster.nodes[N1].state
    look = [" ".join(NODES), " ".join(JOBS)]
    assert [" ".join(VERSION), *look * 3] == programs.calls()


def test_reservations_are_asked_for_instead_of_jobs(
    adapter: PbsAdapter, programs: Programs
) -> None:
    """
    A reservation closes its node until its begin is known; that costs no third command.
    """
    adapter.look()
    programs.nodes(nodes_dsv(read(MASTER / "10-reservation/pbsnodes_a.out")))
    seen = set()
    for _ in range(24):
        before = len(programs.calls())
        cluster = adapter.look()
        assert 2 == len(programs.calls()) - before
        seen |= {c for c in cluster.nodes[N1].claims if c.source is ClaimSource.RESERVED}

    begin = datetime(2026, 12, 1, 7, 3, 25, tzinfo=UTC)
    assert {("reservation R70.vm", begin)} == {(claim.detail, claim.at) for claim in seen}
    asked = [call.split()[0] for call in programs.calls()].count(RESERVATIONS[0])
    # Once when it appeared, and then every ten looks: it may be moved.
    assert asked == 3


def test_a_reservation_that_is_new_closes_its_node(
    adapter: PbsAdapter, programs: Programs, clock: ManualClock
) -> None:
    """
    In the first look of all the jobs come first, and the reservation counts as one that is on.
    """
    programs.nodes(nodes_dsv(read(MASTER / "10-reservation/pbsnodes_a.out")))
    programs.say("qstat", "exit 0")
    node = adapter.look().nodes[N1]

    assert NodeState.UNAVAILABLE is node.state
    assert [clock.now()] == [claim.at for claim in node.claims]


def test_old_jobs_stand_in_for_a_moment_only(
    adapter: PbsAdapter, programs: Programs, clock: ManualClock
) -> None:
    """
    After a silence, or a long time, the jobs are asked for before any reservation.
    """
    adapter.look()
    programs.nodes(nodes_dsv(read(MASTER / "10-reservation/pbsnodes_a.out")))
    clock.wait(timedelta(minutes=5).total_seconds())
    adapter.look()

    assert " ".join(JOBS) == programs.calls()[-1]


@pytest.mark.parametrize(
    ("key", "value", "variable"),
    [("conf", "/etc/other.conf", "PBS_CONF_FILE"), ("server", "other", "PBS_SERVER")],
)
def test_the_server_of_the_site_is_named(
    programs: Programs, clock: ManualClock, key: str, value: str, variable: str
) -> None:
    """
    What the settings say reaches the commands, in UTC, and nothing of the caller's does.
    """
    settings = PbsSettings(bin_dir=str(programs.folder), **{key: value})  # type: ignore[arg-type]  # a text either way
    programs.say("qstat", f"env > {programs.folder}/env")
    PbsAdapter(settings, clock).look()
    lines = (programs.folder / "env").read_text().splitlines()

    assert f"{variable}={value}" in lines
    assert "TZ=UTC" in lines


FAILURES = pytest.mark.parametrize(
    ("script", "told"),
    [
        (f"cat {DOWN}/qstat.err >&2; exit 255", "cannot connect to server vm"),
        (f"cat {DOWN}/qstat_f_json.out; cat {DOWN}/qstat.err >&2; exit 255", "exited with 255"),
        ("echo 'cannot connect to server (errno=15008)' >&2; exit 0", "15008"),
        ("exit 35", "exited with 35"),
        ("kill -9 $$", "exited with -9"),
    ],
)


@FAILURES
def test_a_failure_is_no_answer(
    adapter: PbsAdapter, programs: Programs, script: str, told: str
) -> None:
    """
    A bad exit status or a word on stderr means that nothing was learnt.
    """
    adapter.look()
    programs.say("pbsnodes", script)

    with pytest.raises(UnreachableError, match=told):
        adapter.look()


@FAILURES
def test_without_the_jobs_the_answer_is_partial(
    adapter: PbsAdapter, programs: Programs, script: str, told: str
) -> None:
    """
    Nodes in use are wanted as ever, with the claims that were known; none is idle any more.
    """
    before = adapter.look().nodes
    programs.say("qstat", script)
    found = adapter.look()

    assert told in found.partial
    assert NodeState.IDLE not in {node.state for node in found.nodes.values()}
    assert {n: node.claims for n, node in before.items()} == {
        n: node.claims for n, node in found.nodes.items()
    }
    assert NodeState.BUSY is found.nodes[N1].state


@pytest.mark.parametrize("end", ["exit 0", "kill -9 $$"])
def test_half_an_answer_is_none(adapter: PbsAdapter, programs: Programs, end: str) -> None:
    """
    A command that dies while it prints does not make nodes or jobs vanish.
    """
    adapter.look()
    for program, file in (("qstat", "qstat_f_dsv.out"), ("pbsnodes", "pbsnodes_a_dsv.out")):
        half = (DATA / file).stat().st_size // 2
        programs.say(program, f"head -c {half} {DATA}/{file}; {end}")
        if program == "qstat":
            assert adapter.look().partial
        else:
            with pytest.raises((UnreachableError, UnparsableError)):
                adapter.look()


def test_a_hanging_command_is_no_answer(programs: Programs, clock: ManualClock) -> None:
    """
    It ends after the time-out, and says so.
    """
    programs.say("qstat", "exec sleep 300")
    settings = PbsSettings(bin_dir=str(programs.folder), timeout_seconds=0.5)
    adapter = PbsAdapter(settings, clock)
    assert "qstat gave no answer within 0.5 s" == adapter.look().partial

    programs.say("pbsnodes", "exec sleep 300")
    with pytest.raises(UnreachableError, match=r"pbsnodes gave no answer within 0\.5 s"):
        adapter.look()


def test_an_empty_queue_is_an_answer(adapter: PbsAdapter, programs: Programs) -> None:
    """
    No jobs is a fact, or they are hidden; what the nodes say of theirs counts still.
    """
    programs.say("qstat", "exit 0")
    cluster = adapter.look()

    assert NodeState.BUSY is cluster.nodes[N1].state
    assert ["priority job 2.vm"] == [claim.detail for claim in cluster.nodes[N1].claims]
    assert NodeState.IDLE is cluster.nodes[NodeName("n4")].state


def test_an_empty_list_of_nodes_is_no_answer(adapter: PbsAdapter, programs: Programs) -> None:
    """
    A batch system without nodes is one that did not answer.
    """
    adapter.look()
    programs.nodes("")

    with pytest.raises(UnreachableError, match="lists no nodes"):
        adapter.look()


@pytest.mark.parametrize("stream", ["", " >&2"])
def test_torque_is_refused(adapter: PbsAdapter, programs: Programs, stream: str) -> None:
    """
    Before anything is believed, with the reason.
    """
    said = shlex.quote("Version: 6.1.2\nCommit: 661e09")
    programs.say("pbsnodes", f"echo {said}{stream}")

    with pytest.raises(UnparsableError, match=r"this is Torque 6\.1\.2, another batch system"):
        adapter.look()
    assert [" ".join(VERSION)] == programs.calls()


def test_no_pbs_at_all_is_told(tmp_path: Path, clock: ManualClock) -> None:
    """
    A wrong directory is named.
    """
    adapter = PbsAdapter(PbsSettings(bin_dir=str(tmp_path)), clock)

    with pytest.raises(UnreachableError, match=f"no program pbsnodes in {tmp_path}"):
        adapter.look()


def test_a_good_site_has_no_findings(adapter: PbsAdapter, programs: Programs) -> None:
    """
    Two more commands, only when asked for.
    """
    assert () == adapter.findings()
    assert [" ".join(SERVER), " ".join(HOOKS)] == programs.calls()[-2:]


def test_what_the_site_runs_against_us_is_found(programs: Programs, clock: ManualClock) -> None:
    """
    Killers by uid, load limits, hooks, power saving and versions that differ.
    """
    mom = programs.folder / "config"
    mom.write_text("$restrict_user True\n$restrict_user_maxsysid 500\n$ideal_load 3\n$max_load 4\n")
    (programs.folder / "server").write_text(
        "Server: vm|power_provisioning=True|pbs_version=20.0.1\n"
    )
    hook = "Hook health\n    enabled = True\n    event = exechost_periodic,queuejob\n"
    own = "Hook pbs_cgroups\n    enabled = True\n    event = execjob_begin\n"
    off = "Hook old\n    enabled = False\n    event = execjob_end\n"
    programs.say("qmgr", f"printf %s {shlex.quote(hook + own + off)}")
    settings = PbsSettings(bin_dir=str(programs.folder), mom_config=str(mom))
    found = PbsAdapter(settings, clock).findings()

    told = ("$restrict_user", "$ideal_load and $max_load", "hook health runs", "power_prov", "20.0")
    assert len(told) == len(found)
    assert all(word in sentence for word, sentence in zip(told, found, strict=True))
    assert "above uid 500" in found[0]
    assert "(exechost_periodic)" in found[2]


def test_hooks_that_cannot_be_listed_are_told(adapter: PbsAdapter, programs: Programs) -> None:
    """
    Nobody is told that all is well where nothing could be asked.
    """
    programs.say("qmgr", "echo 'qmgr obj= svr=default: Unauthorized Request' >&2; exit 1")
    (found,) = adapter.findings()

    assert "Unauthorized Request" in found


def test_hidden_jobs_are_found() -> None:
    """
    Only root on the server's host is sure to see suspended jobs of others.
    """
    server = {"query_other_jobs": "False", "server_host": "head.site"}
    assert () == findings(Asked(version="1", uid=0, host="head", server=server))
    for uid, host in ((1000, "head"), (0, "other")):
        (found,) = findings(Asked(version="1", uid=uid, host=host, server=server))
        assert f"hides jobs from uid {uid}" in found


def test_hidden_jobs_are_noticed(adapter: PbsAdapter, programs: Programs) -> None:
    """
    Where nodes tell of jobs that qstat does not list, no node is called idle.
    """
    programs.say("qstat", "exit 0")
    assert "" == adapter.look().partial
    found = adapter.look()
    assert "qstat hides jobs that run (2.vm, 3.vm)" in found.partial
    assert NodeState.IDLE not in {node.state for node in found.nodes.values()}

    # All of them may be suspended now.
    programs.nodes(
        read(DATA / "pbsnodes_a_dsv.out").replace("|jobs=2.vm", "|x=").replace("|jobs=3", "|y=")
    )
    assert adapter.look().partial

    programs.nodes(read(DATA / "pbsnodes_a_dsv.out"))
    programs.say("qstat", f"cat {DATA}/qstat_f_dsv.out")
    assert "" == adapter.look().partial


def test_a_job_that_has_just_started_is_not_hidden(adapter: PbsAdapter, programs: Programs) -> None:
    """
    The two answers are a moment apart.
    """
    for number in range(3):
        programs.nodes(read(DATA / "pbsnodes_a_dsv.out").replace("3.vm/", f"10{number}.vm/"))
        assert "" == adapter.look().partial
