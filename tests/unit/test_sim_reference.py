"""Whole real workloads, beside schedules that were made with other simulators.

The workloads are not part of the project: STOPGAP_TRACES names the folder that they lie in.
"""

import csv
import gzip
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from daemon.sim.costs import Costs
from daemon.sim.rivals import Scheme
from daemon.sim.run import Outcome
from daemon.sim.simulate import Plan, simulate
from daemon.sim.site import Site
from daemon.sim.traces import load
from daemon.sim.workload import Workload

FOLDER = os.environ.get("STOPGAP_TRACES", "")
KTH = "KTH-SP2-1996-2.1-cln.swf.gz"
SDSC = "SDSC-SP2-1998-4.2-cln.swf.gz"
MARCH = "prometheus-idle/17_03_2022_idle_nodes.txt.gz"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER, reason="STOPGAP_TRACES does not name a folder of workloads"),
]


def run(name: str, plan: Plan) -> tuple[Outcome, dict[str, Any]]:
    return simulate(load(Path(FOLDER) / name), plan)


@pytest.mark.parametrize(
    ("name", "reference", "mean_wait", "utilization"),
    [
        (KTH, "pyss_easy_kth.csv.gz", 6899.6566, 0.698970),
        (SDSC, "pyss_easy_sdscsp2.csv.gz", 20569.2181, 0.824509),
    ],
)
@pytest.mark.parametrize("scheme", [Scheme.NONE, Scheme.STOPGAP])
def test_every_start_is_that_of_the_reference(
    name: str, reference: str, mean_wait: float, utilization: float, scheme: Scheme
) -> None:
    """
    Job for job and to the second, without a filler and with one whose moves take no time.
    """
    outcome, figures = run(name, Plan(scheme=scheme, site=Site(costs=Costs.free())))

    with gzip.open(Path(FOLDER) / "reference" / reference, "rt") as file:
        expected = {row["id"]: float(row["start"]) for row in csv.DictReader(file)}
    assert expected == {job.id: job.first for job in outcome.started}
    assert mean_wait == pytest.approx(figures["mean_wait_seconds"], abs=5e-5)
    assert utilization == pytest.approx(figures["utilization"], abs=5e-7)
    assert {"mean": 0, "p99": 0, "max": 0} == figures["priority_delay_seconds"]


def test_what_is_remembered_is_what_would_be_decided() -> None:
    """
    The begin of a real workload, with and without memory, comes to exactly the same.
    """
    trace = load(Path(FOLDER) / KTH)
    assert isinstance(trace, Workload)
    begin = replace(trace, jobs=trace.jobs[:3000])
    outcome, figures = simulate(begin, Plan())
    whole, expected = simulate(begin, Plan(whole=True))

    assert whole.started == outcome.started
    assert expected | {"cpu_seconds": 0} == figures | {"cpu_seconds": 0}


def test_one_pass_for_a_batch_of_events_is_another_schedule() -> None:
    """
    The known mean wait of that rule.
    """
    _, figures = run(KTH, Plan(scheme=Scheme.NONE, pass_per_event=False))

    assert 6897.40 == pytest.approx(figures["mean_wait_seconds"], abs=5e-3)


@pytest.mark.parametrize(
    ("name", "achievable", "idle"), [(KTH, 0.98, 0.0), (SDSC, 0.98, 0.0), (MARCH, 0.97, 0.95)]
)
def test_nearly_all_that_is_achievable_is_harvested(
    name: str, achievable: float, idle: float
) -> None:
    """
    With measured costs, nothing lost, and priority jobs hardly delayed.
    """
    _, figures = run(name, Plan())

    assert figures["achievable_share"] >= achievable
    assert figures["idle_share"] >= idle
    assert 0 == figures["lost_node_seconds"]
    assert figures["priority_delay_seconds"]["mean"] < 1.0


def test_the_simpler_schemes_lose_work_or_delay_more() -> None:
    """
    Kill and requeue, and pilots, win less; the paper's scheme delays priority jobs more.
    """
    found = {scheme: run(KTH, Plan(scheme=scheme))[1] for scheme in Scheme}
    ours, paper = found[Scheme.STOPGAP], found[Scheme.PAPER]

    for scheme in (Scheme.REQUEUE, Scheme.PILOTS):
        assert found[scheme]["harvested_node_seconds"] < 0.95 * ours["harvested_node_seconds"]
        assert found[scheme]["lost_node_seconds"] > 0
    assert ours["priority_delay_seconds"]["mean"] < 0.9 * paper["priority_delay_seconds"]["mean"]
    # What periodic checkpoints cost, which the paper's scheme does not make.
    assert ours["harvested_node_seconds"] > 0.999 * paper["harvested_node_seconds"]
