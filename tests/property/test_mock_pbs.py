"""The PBS model, whatever happens on it, seen through its programs and through the adapter."""

from hypothesis import given
from hypothesis import strategies as st

from adapters.mock_pbs.model import Model, RefusedError
from adapters.mock_pbs.nouns import Cluster, Vnode
from adapters.mock_pbs.programs import run
from adapters.pbs.parse import (
    JOBS,
    NODES,
    RESERVATIONS,
    parse_jobs,
    parse_nodes,
    parse_reservations,
)
from adapters.pbs.picture import draw
from daemon.core.types import ClaimSource, NodeState
from tests.contract.clock import START

START_SECONDS = START.timestamp()
VNODES = ("n1", "n2", "n3[0]", "n3[1]")

acts = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("submit", "delete", "suspend", "resume", "hold", "release"),
                *("offline", "online", "down", "up", "reserve", "wait"),
            ]
        ),
        st.integers(0, 9),
        st.integers(1, 4),
    ),
    max_size=30,
)


def cluster(order: str) -> Cluster:
    return Cluster(
        preempt_order=order,
        vnodes=[Vnode(name=name, host=name.split("[", maxsplit=1)[0]) for name in VNODES],
    )


def act(model: Model, what: str, which: int, size: int) -> None:
    """Do one thing; PBS refuses what it would refuse."""
    vnode = VNODES[which % len(VNODES)]
    marks = {"offline": True, "online": False}
    if what == "submit":
        place = ("free", "scatter", "excl")[which % 3]
        select = f"{1 + which % 2}:ncpus={size}" + (f":vnode={vnode}" if which > 6 else "")
        limit = None if which == 5 else size * 300
        queue = ("workq", "backfill")[size % 2]
        model.submit(
            select=select,
            place=place,
            walltime=limit,
            held=which == 4,
            queue=queue,
            rerunnable=which != 8,
        )
    elif what == "wait":
        model.now += (size * 100, 6)[which % 2]
        model.cycle()
    elif what in marks:
        model.mark(vnode, offline=marks[what])
    elif what in {"down", "up"}:
        model.mark(vnode, down=what == "down")
    elif what == "reserve":
        model.reserve(vnode, begin=model.now + size * 100, seconds=500, maintenance=which > 6)
    else:
        getattr(model, what)(which + 1)


def check(model: Model) -> None:
    """No core is given away twice, and the adapter takes nothing for idle that is not."""
    for vnode in model.cluster.vnodes:
        assert 0 <= model.taken(vnode.name) <= vnode.ncpus
    answers = [run(model, argv[0], argv[1:]) for argv in (NODES, JOBS, RESERVATIONS)]
    assert {("", 0)} == {(said.err, said.code) for said in answers}
    nodes, jobs, reservations = (said.out for said in answers)
    taken = START.fromtimestamp(model.now, START.tzinfo)
    drawn = draw(parse_nodes(nodes), parse_jobs(jobs), parse_reservations(reservations), taken)
    held = {model.vnode(c.vnode).host for job in model.cluster.jobs if job.holds for c in job.has}
    closed = {v.host for v in model.cluster.vnodes if v.down or v.offline}
    reserved = {
        model.vnode(c.vnode).host
        for r in model.cluster.reservations
        if r.begin <= model.now
        for c in r.has
    }
    planned = {model.vnode(c.vnode).host for job in model.cluster.jobs for c in job.planned}
    for name, node in drawn.items():
        idle = name not in held | closed | reserved | planned
        assert idle == (node.state is NodeState.IDLE), (node, model.cluster)
        sources = {claim.source for claim in node.claims}
        assert (ClaimSource.ALLOCATED in sources) == (name in held)
        assert (ClaimSource.PLANNED in sources) == (name in planned)


@given(acts, st.sampled_from(["R", "D", "S", ""]))
def test_the_picture_is_the_models(done: list[tuple[str, int, int]], order: str) -> None:
    """
    Through two programs' text nothing is lost of what matters, and nothing is added.
    """
    model = Model(cluster(order), START_SECONDS)
    for what, which, size in done:
        try:
            act(model, what, which, size)
        except RefusedError:
            continue
        check(model)
