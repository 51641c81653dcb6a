"""The cluster model, whatever happens on it."""

from collections import Counter
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.mock_slurm.model import Model
from adapters.mock_slurm.nouns import (
    Discipline,
    JobPhase,
    JobView,
    Machine,
    PriorityJob,
    Reservation,
)
from daemon.core.types import NodeName

HOLDING = {JobPhase.PROLOG, JobPhase.RUNNING, JobPhase.SUSPENDED, JobPhase.COMPLETING}
SIZE = 5
NAMES = tuple(NodeName(f"n{number}") for number in range(SIZE))


@st.composite
def workloads(draw: st.DrawFn) -> list[PriorityJob]:
    """Jobs of any size that the cluster can hold, some of them for certain nodes."""
    jobs = []
    for number in range(draw(st.integers(0, 25))):
        named = draw(st.sets(st.sampled_from(NAMES)) | st.just(set[NodeName]()))
        runtime = draw(st.integers(0, 50))
        job = PriorityJob(
            id=number,
            submit=draw(st.integers(0, 100)),
            nodes=len(named) or draw(st.integers(1, SIZE)),
            runtime=runtime,
            limit=draw(st.integers(1, 60)),
            named=tuple(sorted(named)),
        )
        jobs.append(job)
    return jobs


disciplines = st.sampled_from(list(Discipline))
meddling = st.lists(
    st.tuples(
        st.integers(0, 150),
        st.sampled_from(["drain", "undrain", "down", "up", "end", "suspend", "resume", "reserve"]),
        st.integers(0, 24),
    ),
    max_size=12,
)


def run(
    jobs: list[PriorityJob], meddlings: list[tuple[int, str, int]], discipline: Discipline
) -> Model:
    """Play a workload to its end, checking after every event."""
    model = Model(
        [Machine(name=name) for name in NAMES], discipline=discipline, completing_seconds=1
    )
    for job in jobs:
        model.submit(job)
    for at, what, which in sorted(meddlings):
        play(model, until=at)
        meddle(model, what, which)
        check(model)
    play(model, until=10_000)
    return model


def play(model: Model, *, until: float) -> None:
    while (event := model.next_event()) is not None and event <= until:
        model.advance_to(event)
        check(model)
    model.advance_to(max(until, model.now))


def meddle(model: Model, what: str, which: int) -> None:
    node = NAMES[which % SIZE]
    known = {view.job.id for view in model.jobs()}
    if what in {"drain", "undrain"}:
        model.drain(node, drained=what == "drain")
    elif what in {"down", "up"}:
        model.down(node, down=what == "down")
    elif what == "reserve":
        now = model.now
        model.reserve(Reservation(name="r", nodes=(node,), begin=now + which, end=now + 40))
    elif which in known:
        {"end": model.end, "suspend": model.suspend, "resume": model.resume}[what](which)


def check(model: Model) -> None:
    """No node has two jobs, and what jobs and nodes say about each other agrees."""
    holding = {view.job.id: view for view in model.jobs() if view.phase in HOLDING}
    held = Counter(node for view in holding.values() for node in view.nodes)
    assert not held or max(held.values()) == 1
    for machine in model.machines():
        name = machine.machine.name
        assert (machine.job is not None) == (name in held)
        if machine.job is not None:
            assert name in holding[machine.job.id].nodes
            assert not machine.down
    for view in holding.values():
        assert view.job.nodes == len(view.nodes)
        assert not view.job.named or set(view.job.named) == set(view.nodes)


@settings(max_examples=30, deadline=None)
@given(workloads(), meddling, disciplines)
def test_capacity_is_never_exceeded(
    jobs: list[PriorityJob], meddlings: list[tuple[int, str, int]], discipline: Discipline
) -> None:
    """
    Whatever operators and users do, a node has one job at most, and each job its nodes.
    """
    run(jobs, meddlings, discipline)


@settings(max_examples=30, deadline=None)
@given(workloads(), meddling, disciplines)
def test_the_same_input_gives_the_same_history(
    jobs: list[PriorityJob], meddlings: list[tuple[int, str, int]], discipline: Discipline
) -> None:
    """
    Neither the order of submission calls nor anything hidden has an influence.
    """
    once = run(jobs, meddlings, discipline)
    again = run(jobs[::-1], meddlings, discipline)

    assert history(once) == history(again)


def history(model: Model) -> list[JobView]:
    return sorted(model.jobs(), key=lambda view: view.job.id)


@settings(max_examples=25, deadline=None)
@given(workloads(), disciplines)
def test_undisturbed_jobs_all_end_in_time(jobs: list[PriorityJob], discipline: Discipline) -> None:
    """
    Each job runs once, for its runtime or until its limit, not before its submission.
    """
    for view in run(jobs, [], discipline).jobs():
        assert view.phase is JobPhase.ENDED
        assert view.first is not None
        assert view.ended is not None
        assert view.first >= view.job.submit
        assert min(view.job.runtime, view.job.limit) == view.ended - view.first


@settings(max_examples=25, deadline=None)
@given(workloads())
def test_without_backfill_nobody_overtakes(jobs: list[PriorityJob]) -> None:
    """
    First come, first served: starts are in the order of submission.
    """
    views = sorted(run(jobs, [], Discipline.FCFS).jobs(), key=lambda v: (v.job.submit, v.job.id))
    starts = [view.began or 0.0 for view in views]

    assert sorted(starts) == starts


@settings(max_examples=25, deadline=None)
@given(workloads())
def test_backfill_never_delays_the_planned_job(jobs: list[PriorityJob]) -> None:
    """
    The promise of EASY: the first waiting job starts no later than it was once planned.
    """
    model = Model([Machine(name=name) for name in NAMES])
    promised: dict[int, float] = {}
    for job in jobs:
        model.submit(job)
    while (event := model.next_event()) is not None:
        model.advance_to(event)
        planned = model.planned()
        if planned is not None:
            known = promised.setdefault(planned.job.id, planned.at)
            assert planned.at <= known
            promised[planned.job.id] = planned.at
    for job_id, at in promised.items():
        began = model.job(job_id).began
        assert began is not None
        assert began <= at


@settings(max_examples=40, deadline=None)
@given(workloads())
def test_the_schedule_is_that_of_easy(jobs: list[PriorityJob]) -> None:
    """
    Every start is that of EASY as it is written down, with counts instead of nodes.
    """
    anywhere = [replace(job, named=()) for job in jobs]
    model = Model([Machine(name=name) for name in NAMES])
    for job in anywhere:
        model.submit(job)
    model.advance_to(100_000)

    assert easy(anywhere) == {view.job.id: view.began for view in model.jobs()}


def easy(jobs: list[PriorityJob]) -> dict[int, float]:
    """
    Schedule by the book (Mu'alem and Feitelson, 2001).

    At each moment ends come before submissions, then there is one pass.
    """
    starts: dict[int, float] = {}
    running: list[PriorityJob] = []
    moments = {job.submit for job in jobs}
    while moments:
        now = min(moments)
        moments.remove(now)
        running = [job for job in running if starts[job.id] + min(job.runtime, job.limit) > now]
        free = SIZE - sum(job.nodes for job in running)
        queue = [job for job in jobs if job.submit <= now and job.id not in starts]
        queue.sort(key=lambda job: (job.submit, job.id))
        shadow, extra = inf, SIZE
        for position, job in enumerate(queue):
            first = not any(earlier.id not in starts for earlier in queue[:position])
            fits = job.nodes <= free and (first or now + job.limit <= shadow or job.nodes <= extra)
            if fits:
                extra -= 0 if first or now + job.limit <= shadow else job.nodes
                free -= job.nodes
                starts[job.id] = now
                running.append(job)
                moments.add(now + min(job.runtime, job.limit))
            elif first:
                ends = sorted(starts[r.id] + r.limit for r in running for _ in range(r.nodes))
                shadow = ends[job.nodes - free - 1]
                extra = free + sum(end <= shadow for end in ends) - job.nodes
    return starts


@given(workloads())
def test_conservative_backfill_keeps_every_promise(jobs: list[PriorityJob]) -> None:
    """
    No job starts later than it would if nobody had come after it.
    """
    anywhere = [replace(job, named=(), submit=number) for number, job in enumerate(jobs)]
    began: list[float] = []
    for number in range(len(anywhere)):
        model = Model([Machine(name=n) for n in NAMES], discipline=Discipline.CONSERVATIVE)
        for job in anywhere[: number + 1]:
            # Everybody uses his whole limit: what is promised then is what is known at first.
            model.submit(replace(job, runtime=job.limit))
        model.advance_to(100_000)
        starts = [view.began or 0.0 for view in model.jobs()]
        assert began == starts[:-1]
        began = starts


def test_backfill_uses_what_would_stand_empty() -> None:
    """
    A short job runs beside the hole that a large one waits for; a long one does not.
    """
    model = Model([Machine(name=name) for name in NAMES[:2]])
    for number, nodes, seconds in ((1, 1, 100), (2, 2, 100), (3, 1, 200), (4, 1, 50)):
        model.submit(
            PriorityJob(id=number, submit=number, nodes=nodes, runtime=seconds, limit=seconds)
        )
    model.advance_to(10)

    phases = [model.job(number).phase for number in (1, 2, 3, 4)]
    assert [JobPhase.RUNNING, JobPhase.PENDING, JobPhase.PENDING, JobPhase.RUNNING] == phases
    planned = model.planned()
    assert planned is not None
    assert (2, 101.0, frozenset(NAMES[:2])) == (planned.job.id, planned.at, planned.nodes)


def test_no_instruction_before_the_last_prolog() -> None:
    """
    A job waits for the slowest of its prologs, timed or told.
    """
    lasts = {NAMES[0]: 3.0, NAMES[1]: None, NAMES[2]: 0.0}
    model = Model(
        [Machine(name=n) for n in NAMES[:3]],
        prolog=lambda _, nodes: {node: lasts[node] for node in nodes},
    )
    model.submit(PriorityJob(id=1, submit=0, nodes=3, runtime=10, limit=20))
    model.advance_to(5)
    assert JobPhase.PROLOG is model.job(1).phase

    model.finish_prolog(1, NAMES[1])
    assert JobPhase.RUNNING is model.job(1).phase
    assert 5.0 == model.job(1).first
    model.advance_to(15)
    assert 15.0 == model.job(1).ended


def test_a_lost_node_gives_its_job_back_to_the_queue() -> None:
    """
    A job whose node went down starts again elsewhere, in its old place in the queue.
    """
    model = Model([Machine(name=name) for name in NAMES[:2]])
    model.submit(PriorityJob(id=1, submit=0, nodes=1, runtime=10, limit=20))
    model.advance_to(4)
    model.down(NAMES[0])

    assert (NAMES[1],) == model.job(1).nodes
    model.advance_to(14)
    assert JobPhase.ENDED is model.job(1).phase


def test_a_reservation_keeps_its_nodes_free() -> None:
    """
    No job is placed where its limit would reach into a reservation.
    """
    model = Model([Machine(name=NAMES[0])])
    model.reserve(Reservation(name="r", nodes=(NAMES[0],), begin=50, end=100))
    model.submit(PriorityJob(id=1, submit=0, nodes=1, runtime=10, limit=60))
    model.submit(PriorityJob(id=2, submit=1, nodes=1, runtime=10, limit=20))
    model.advance_to(200)

    assert 100.0 == model.job(1).began
    assert 1.0 == model.job(2).began


@pytest.mark.parametrize(
    "job",
    [
        PriorityJob(id=1, submit=0, nodes=0, runtime=1, limit=1),
        PriorityJob(id=1, submit=0, nodes=2, runtime=1, limit=1, named=(NAMES[0],)),
    ],
)
def test_a_job_that_makes_no_sense_is_refused(job: PriorityJob) -> None:
    """
    A job needs nodes, and names all of them or none.
    """
    with pytest.raises(ValueError, match="names all or none"):
        Model([Machine(name=NAMES[0])]).submit(job)
