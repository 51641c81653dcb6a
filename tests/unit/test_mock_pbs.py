"""The PBS stand-ins print what a real PBS printed in the same situation, byte for byte."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from adapters.mock_pbs.model import Model
from adapters.mock_pbs.nouns import Cluster, Vnode
from adapters.mock_pbs.programs import run
from tests.unit.captured import read
from tests.unit.pbs_text import MASTER, RELEASE, jobs_dsv, nodes_dsv, nodes_text

#: What only a kernel, a clock or an account can know; all else the model must know by itself.
JOB_FACTS = (
    *(f"resources_used.{key}" for key in ("cpupercent", "cput", "mem", "ncpus", "vmem")),
    "resources_used.walltime",
    "mtime",
    "session_id",
    "queue_rank",
)
ARGUMENTS = "-o /tmp/jobs/ -j oe -N {name} {rest}{script}"


def at(time: str) -> float:
    return datetime.fromisoformat(f"2026-12-01T{time}").replace(tzinfo=UTC).timestamp()


def cluster(first: int) -> Cluster:
    """Return the four nodes that were captured; two of them have GPUs."""
    nodes = [Vnode(name=f"n{i}", host=f"n{i}", ngpus=2 * (i < 3)) for i in range(1, 5)]
    return Cluster(next_job=first, vnodes=nodes)


def submit(
    model: Model,
    name: str,
    owner: str,
    select: str,
    rest: str = "",
    *,
    first: str = "",
    script: str = "sleeper.sh",
    **more: object,
) -> int:
    """Enqueue a job as it was when the text was captured."""
    words = f"{first}-l select={select} {rest}"
    arguments = ARGUMENTS.format(name=name, rest=words, script=script)
    job = model.submit(name=name, owner=owner, select=select, arguments=arguments, **more)  # type: ignore[arg-type]  # what submit takes
    return job.number


def idle(_: Model) -> None:
    """Nothing happens."""


def one_running(model: Model) -> None:
    big = "1:ncpus=4:mem=3gb:ngpus=2"
    submit(model, "train_big", "alice", big, "-l walltime=2:00:00 ", walltime=7200)
    small = "1:ncpus=1:mem=500mb"
    # n1 is full: one core on n2.
    submit(model, "small", "bob", small, "-q backfill ", queue="backfill")


def estimates(model: Model) -> None:
    scatter = "-l place=scatter -l walltime=20:00 "
    submit(model, "run", "alice", "4:ncpus=4", scatter, place="scatter", walltime=1200)
    model.now = at("07:10:06")
    for name in ("q1", "q2", "q3", "q4", "q5", "q6", "q7"):
        submit(model, name, "alice", "2:ncpus=4", "-l walltime=10:00 ", walltime=600)
    submit(model, "nowall", "bob", "1:ncpus=1", first="-q backfill ", queue="backfill")


def chunks(model: Model) -> None:
    multi = "2:ncpus=2:ngpus=1+1:ncpus=4"
    submit(model, "multi", "alice", multi, "-l place=scatter ", place="scatter")
    submit(model, "a1", "alice", "1:ncpus=1")
    submit(model, "a2", "alice", "1:ncpus=1:vnode=n4")


def offline(model: Model) -> None:
    submit(model, "onn1", "alice", "1:ncpus=2:vnode=n1")
    submit(model, "onn3", "alice", "1:ncpus=4:vnode=n3", "-r y ")
    excl = "-l place=excl "
    submit(model, "excl", "alice", "1:ncpus=1:vnode=n2", excl, place="excl")
    for vnode, comment in (("n1", "o'brien, = 5%"), ("n4", 'GPU 3|bad "x" größe ☃ back\\slash')):
        model.mark(vnode, offline=True)
        model.vnode(vnode).comment = comment


def suspended(model: Model) -> None:
    model.suspend(submit(model, "tosusp", "alice", "1:ncpus=4:vnode=n1"))
    submit(model, "toadm", "alice", "1:ncpus=4:vnode=n2")


def vnodes(model: Model) -> None:
    model.cluster.vnodes[3:] = [
        Vnode(name="n4", host="n4", ncpus=0, mem="0b", mem_kb=0, multi=True),
        *(
            Vnode(
                name=f"n4[{i}]",
                host="n4",
                ncpus=cores,
                mem="2gb",
                pcpus=None,
                multi=True,
                sharing="default_excl" if i == 0 else "default_shared",
            )
            for i, cores in enumerate((2, 2, 4))
        ),
    ]
    for each in model.cluster.vnodes:
        each.ever.clear()
    # Captured in the moment before its program ran.
    model.job(submit(model, "onvn", "alice", "2:ncpus=2:host=n4")).substate = 41


def reserved(model: Model) -> None:
    model.now = at("07:02:15")
    model.reserve("n1", begin=at("07:03:25"), seconds=600, maintenance=False)


def running(model: Model) -> None:
    stub = "-l place=scatter -l walltime=30:00 "
    submit(
        model,
        "bf_stub",
        "bob",
        "2:ncpus=4",
        stub,
        first="-q backfill -r y ",
        script="stubborn.sh",
        queue="backfill",
        place="scatter",
        walltime=1800,
    )
    rest = "-l walltime=30:00 "
    plain = "1:ncpus=4"
    first = "-q backfill "
    submit(model, "bf_plain", "bob", plain, rest, first=first, queue="backfill", walltime=1800)


def preempting(model: Model) -> None:
    running(model)
    model.now = at("06:57:38")
    rest = "-l place=scatter -l walltime=10:00 "
    select = "4:ncpus=4"
    submit(
        model,
        "prio4",
        "alice",
        select,
        rest,
        script="stubborn.sh",
        place="scatter",
        walltime=600,
    )


SITUATIONS: dict[str, tuple[int, str, Callable[[Model], None]]] = {
    "01-idle": (1, "06:50:00", idle),
    "02-one-running": (2, "06:50:54", one_running),
    "03c-estimates-strict-true": (1196, "07:10:03", estimates),
    "04-multichunk": (21, "06:53:34", chunks),
    "06-R-a-before": (46, "06:57:33", running),
    "06-R-b-during": (46, "06:57:33", preempting),
    "07-offline": (61, "07:01:28", offline),
    "10-reservation": (70, "07:02:15", reserved),
    "14-vnodes": (1205, "07:10:45", vnodes),
}


def played(situation: str) -> Model:
    """Bring the situation about, and add what only the captured machine knows."""
    first, when, play = SITUATIONS[situation]
    model = Model(cluster(first), at(when))
    play(model)
    for line in nodes_dsv(nodes_text(MASTER / situation)).splitlines():
        facts = dict(field.partition("=")[::2] for field in line.split("|"))
        vnode = model.vnode(facts["Name"])
        vnode.changed = float(facts["last_state_change_time"])
        vnode.used = float(facts["last_used_time"]) if "last_used_time" in facts else None
        # Earlier jobs had them.
        vnode.ever = ["ngpus"] if "resources_assigned.ngpus" in facts else []
    for line in jobs_dsv(read(MASTER / situation / "qstat_f.out")).splitlines():
        facts = dict(field.partition("=")[::2] for field in line.split("|"))
        job = model.job(int(line.split(".")[0].removeprefix("Job Id: ")))
        job.attributes = {key: facts[key] for key in JOB_FACTS if key in facts}
    return model


@pytest.mark.parametrize("situation", SITUATIONS)
def test_nodes_are_printed_as_pbs_does(situation: str) -> None:
    """
    Both formats, every byte.
    """
    model = played(situation)
    text = nodes_text(MASTER / situation)

    assert text == run(model, "pbsnodes", ["-av"]).out
    assert nodes_dsv(text) == run(model, "pbsnodes", ["-av", "-F", "dsv"]).out


@pytest.mark.parametrize("situation", SITUATIONS)
def test_jobs_are_printed_as_pbs_does(situation: str) -> None:
    """
    Lines are wrapped where qstat wraps them, and are not in the other format.
    """
    model = played(situation)
    text = read(MASTER / situation / "qstat_f.out")

    assert text == run(model, "qstat", ["-f"]).out
    assert jobs_dsv(text) == run(model, "qstat", ["-f", "-t", "-F", "dsv"]).out
    assert read(MASTER / situation / "qstat.out") == run(model, "qstat", []).out


@pytest.mark.parametrize("situation", ["02-one-running", "07-offline"])
def test_what_was_captured_in_our_format_is_printed(situation: str) -> None:
    """
    Nothing lies between this comparison and what the real client printed.
    """
    model = played(situation)

    assert (
        read(MASTER / situation / "pbsnodes_a_dsv.out")
        == run(model, "pbsnodes", ["-av", "-F", "dsv"]).out
    )


def test_a_reservation_is_printed_as_pbs_does() -> None:
    """
    All that pbs_rstat says.
    """
    model = played("10-reservation")

    assert read(RELEASE / "10-pbs_rstat_F.out") == run(model, "pbs_rstat", ["-F"]).out


@pytest.mark.parametrize(
    ("argv", "captured"),
    [
        (["qstat"], "qstat"),
        (["pbsnodes", "-a"], "pbsnodes_a_json"),
        (["qmgr", "-c", "p s"], "qmgr"),
    ],
)
def test_a_dead_server_is_told_as_pbs_does(argv: list[str], captured: str) -> None:
    """
    Both streams and the exit status.
    """
    model = Model(cluster(1), at("07:00:00"))
    model.cluster.dead = True
    said = run(model, argv[0], argv[1:])
    folder = RELEASE / "17-server-down"

    assert read(folder / f"{captured}.out") == said.out
    assert read(folder / f"{captured}.err") == said.err
    assert read(folder / f"{captured}.rc").strip() == str(said.code)


@pytest.mark.parametrize(
    ("argv", "captured"),
    [(["qstat", "-f", "99999"], "qstat_nojob"), (["pbsnodes", "nosuch"], "pbsnodes_nonode")],
)
def test_what_is_not_there_is_told_as_pbs_does(argv: list[str], captured: str) -> None:
    """
    The words and the exit status of a name that nobody knows.
    """
    said = run(Model(cluster(1), at("07:00:00")), argv[0], argv[1:])
    folder = RELEASE / "17-server-down"

    assert read(folder / f"{captured}.err") == said.err
    assert read(folder / f"{captured}.rc").strip() == str(said.code)


def test_a_suspended_job_leaves_its_node_as_pbs_has_it() -> None:
    """
    It is in no list and has no cores any more; its memory is nobody's business.
    """
    model = Model(cluster(64), at("07:02:04"))
    suspended(model)
    lines = run(model, "pbsnodes", ["-av", "-F", "dsv"]).out.splitlines()
    captured = read(MASTER / "09-held-suspended/pbsnodes_a_dsv.out").splitlines()

    for node in (0, 1):
        told, real = (
            {*line.split("|last_")[0].split("|")} for line in (lines[node], captured[node])
        )
        # Nothing of these GPUs was ever given away here.
        assert real - told == {"resources_assigned.ngpus=0"}
        assert told <= real


def test_commands_change_what_others_see() -> None:
    """
    A job is submitted, held, released, suspended, resumed and deleted.
    """
    model = Model(cluster(1), at("07:00:00"))

    def state() -> str:
        rows = run(model, "qstat", []).out.splitlines()[2:]
        return rows[0].split()[-2] if rows else ""

    assert "1.vm\n" == run(model, "qsub", ["-h", "-N", "x", "-l", "select=1:ncpus=4", "s.sh"]).out
    for argv, after in (
        (["qrls", "1.vm"], "R"),
        (["qsig", "-s", "suspend", "1"], "S"),
        (["qsig", "-s", "resume", "1"], "R"),
        (["qdel", "1.vm"], ""),
    ):
        said = run(model, argv[0], argv[1:])
        assert ("", "", 0) == (said.out, said.err, said.code)
        assert after == state()
    assert 153 == run(model, "qdel", ["1.vm"]).code
    assert "qdel: illegally formed job identifier: nosuch\n" == run(model, "qdel", ["nosuch"]).err


def test_jobs_that_are_named_are_told_in_that_order() -> None:
    """
    As qstat does, which asks for one after the other.
    """
    model = Model(cluster(1), at("07:00:00"))
    names = [run(model, "qsub", ["s.sh"]).out.strip() for _ in range(9)][::-1]

    rows = run(model, "qstat", names).out.splitlines()[2:]
    assert names == [row.split()[0] for row in rows]


@pytest.mark.parametrize(
    ("order", "during", "after"),
    [("R", "R60 R60 Q10", "Q10 Q10 R42"), ("D", "R42 R42 Q10", "R42"), ("S", "S45 S45 R42", "")],
)
def test_preemption_is_as_it_was_observed(order: str, during: str, after: str) -> None:
    """
    Requeued and deleted jobs go on for their grace time, suspended ones are stopped at once.
    """
    model = Model(cluster(46), at("06:57:33"))
    model.cluster.preempt_order = order
    preempting(model)

    def told() -> str:
        return " ".join(f"{job.state}{job.substate}" for job in model.cluster.jobs)

    assert during == told()
    model.now += 11
    model.cycle()
    assert (after or during) == told()
    model.now += 700
    model.cycle()
    # The priority job's time is up; what is left of the others goes on.
    assert {"R": "R42 R42", "D": "", "S": "R42 R42"}[order] == told()


def test_a_job_that_cannot_be_requeued_saves_all() -> None:
    """
    No job is preempted, and the priority job waits.
    """
    model = Model(cluster(46), at("06:57:33"))
    model.submit(select="1:ncpus=4", queue="backfill", rerunnable=False)
    model.submit(select="1:ncpus=4", queue="backfill")
    model.submit(select="4:ncpus=4", place="scatter")

    assert ["R", "R", "Q"] == [job.state for job in model.cluster.jobs]
