"""The simulator, whatever is replayed: nothing shared twice, nothing made up."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.mock_slurm.nouns import Discipline
from daemon.sim.costs import Costs
from daemon.sim.rivals import Scheme
from daemon.sim.simulate import Plan, simulate
from daemon.sim.site import Site
from daemon.sim.supply import Mix
from daemon.sim.workload import Gap, Samples, Shape, TraceJob, Workload, assemble
from daemon.sim.workload import Rows as TraceRows

NODES = 4
SLOW = Costs(checkpoint_seconds=5.0, resume_seconds=7.0, start_seconds=3.0)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Priority jobs of a small cluster, many of them at the same moments."""
    cores = draw(st.sampled_from([1, 4]))
    rows = TraceRows()
    for number in range(draw(st.integers(1, 25))):
        rows.add(
            str(number),
            submit=draw(st.integers(0, 40)) * 20,
            processors=draw(st.integers(1, NODES)) * cores,
            runtime=draw(st.integers(1, 200)),
            limit=draw(st.integers(1, 300)),
        )
    return assemble("w", rows, Shape(nodes=NODES, cores_per_node=cores))


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Any policy for them, with moves that take a while."""
    return Plan(
        scheme=draw(st.sampled_from([Scheme.STOPGAP, *Scheme])),
        discipline=draw(st.sampled_from(list(Discipline))),
        pass_per_event=draw(st.booleans()),
        site=Site(costs=draw(st.sampled_from([SLOW, Costs(), Costs.free()])), poll_seconds=10),
        mix=Mix(
            memory_mib=draw(st.sampled_from([(64, 512, 2048), (1024,)])),
            cpus=draw(st.sampled_from([0, 1])),
            hours=draw(st.sampled_from([0.02, 24.0])),
        ),
        pilot_seconds=50,
        seed=draw(st.integers(0, 3)),
    )


@given(workloads(), plans())
def test_nodes_are_never_shared_and_nothing_is_made_up(trace: Workload, plan: Plan) -> None:
    """
    Priority jobs never have more nodes than there are, and no more is harvested than was idle.
    """
    outcome, found = simulate(trace, plan)

    changes: dict[float, int] = defaultdict(int)
    for job in outcome.started:
        changes[job.began] += job.nodes
        changes[job.ended] -= job.nodes
    used = 0
    for moment in sorted(changes):
        used += changes[moment]
        assert 0 <= used <= NODES
    assert len(trace.jobs) == len(outcome.started)
    busy = sum(job.nodes * (job.ended - job.began) for job in outcome.started)
    idle = NODES * found["span_seconds"] - busy
    assert idle == pytest.approx(found["idle_node_seconds"], abs=1e-3)
    assert -1e-6 <= found["harvested_node_seconds"] <= idle + 1e-3
    assert found["harvested_node_seconds"] <= found["achievable_node_seconds"] + 1e-3


@given(workloads(), plans())
def test_what_is_left_out_of_a_look_is_of_no_concern(trace: Workload, plan: Plan) -> None:
    """
    Looks at everything, without memory, lead to exactly the same.
    """
    plan = replace(plan, scheme=Scheme.STOPGAP)
    outcome, found = simulate(trace, plan)
    whole, expected = simulate(trace, replace(plan, whole=True))

    assert whole.started == outcome.started
    assert expected | {"cpu_seconds": 0} == found | {"cpu_seconds": 0}


@given(workloads(), plans())
def test_moves_that_take_no_time_delay_nobody(trace: Workload, plan: Plan) -> None:
    """
    Every priority job starts when it would without a filler, to the second.
    """
    plan = replace(plan, site=replace(plan.site, costs=Costs.free()))
    outcome, found = simulate(trace, plan)
    alone, _ = simulate(trace, replace(plan, scheme=Scheme.NONE))

    assert alone.started == outcome.started
    assert {"mean": 0, "p99": 0, "max": 0} == found["priority_delay_seconds"]


@given(workloads(), plans())
def test_the_same_seed_gives_the_same(trace: Workload, plan: Plan) -> None:
    """
    Twice the same, in the same process or another.
    """
    first, found = simulate(trace, plan)
    second, again = simulate(trace, plan)

    assert first.started == second.started
    assert found | {"cpu_seconds": 0} == again | {"cpu_seconds": 0}


@given(workloads(), plans())
def test_the_daemons_own_policy_loses_nothing(trace: Workload, plan: Plan) -> None:
    """
    As long as there is time to save everything.
    """
    _, found = simulate(trace, replace(plan, scheme=Scheme.STOPGAP))

    assert 0 == found["lost_node_seconds"]
    assert 0 == found["kills"]


@st.composite
def recorded(draw: st.DrawFn) -> Samples:
    """Gaps of a few nodes, one after the other on each."""
    gaps = []
    for node in range(3):
        moment = 0
        for _ in range(draw(st.integers(0, 5))):
            begin = moment + draw(st.integers(1, 60))
            moment = begin + draw(st.integers(1, 200))
            gaps.append(Gap(f"n{node}", begin, moment))
    gaps.append(Gap("n9", 0, 10))
    return Samples(
        name="s",
        gaps=tuple(sorted(gaps, key=lambda gap: (gap.begin, gap.node))),
        begin=0,
        end=max(gap.end for gap in gaps),
    )


@settings(max_examples=50)
@given(recorded(), plans())
def test_recorded_gaps_are_filled_as_planned_ones_are(trace: Samples, plan: Plan) -> None:
    """
    The same with and without memory, and no more than there was.
    """
    plan = replace(plan, scheme=Scheme.STOPGAP)
    _, found = simulate(trace, plan)
    _, expected = simulate(trace, replace(plan, whole=True))

    assert expected | {"cpu_seconds": 0} == found | {"cpu_seconds": 0}
    assert sum(gap.end - gap.begin for gap in trace.gaps) == found["idle_node_seconds"]
    assert found["harvested_node_seconds"] <= found["achievable_node_seconds"] + 1e-3


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=30), st.floats(0, 10))
def test_the_file_system_gives_no_more_than_it_has(mibs: list[int], backlog: float) -> None:
    """
    Nobody is faster than alone, and all together not faster than the file system.
    """
    costs = Costs(shared_mib_per_second=1000.0)
    lasts = costs.evictions(mibs, backlog)

    assert all(costs.checkpoint(mib) <= took + 1e-9 for mib, took in zip(mibs, lasts, strict=True))
    assert max(lasts) + 1e-6 >= sum(mibs) / 1000.0
    assert max(lasts) <= costs.checkpoint(max(mibs)) + sum(mibs) / 1000.0 + backlog


def test_what_each_user_got_is_told(tmp_path: Path) -> None:
    """
    Two users with the same work, side by side on one node, come out equal.
    """
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("seconds,cpus,uid\n500,2,1\n500,2,2\n")
    trace = Workload(
        name="w",
        jobs=(TraceJob("1", 0, 4, 10, 10), TraceJob("2", 2000, 4, 10, 10)),
        nodes=1,
        cores_per_node=4,
    )
    _, found = simulate(trace, Plan(jobs=jobs))

    assert {"1": 250, "2": 250} == found["harvested_by_user"]
    assert 1 == found["fairness"]


def test_jobs_of_a_file_are_run(tmp_path: Path) -> None:
    """
    Two jobs of half a node's cores share it, from their submission on.
    """
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("submit,seconds,cpus,memory_mib\n100,500,2,512\n100,500,2,512\n")
    trace = Workload(
        name="w",
        jobs=(
            TraceJob("1", 0, 4, 10, 10),
            TraceJob("2", 2000, 4, 10, 10),
        ),
        nodes=1,
        cores_per_node=4,
    )
    _, found = simulate(trace, Plan(jobs=jobs))

    assert 2 == found["completed"]
    assert 500 == found["harvested_node_seconds"]
