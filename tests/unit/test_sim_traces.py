"""Traces in their formats, and what is guessed where they are silent."""

import gzip
import json
from pathlib import Path

import pytest

from daemon.sim.costs import Costs, CostsError
from daemon.sim.costs import load as load_costs
from daemon.sim.supply import Supply
from daemon.sim.traces import Format, load
from daemon.sim.workload import Samples, Shape, TraceError, Workload

# Made by the rules of the format, not captured: job, submit, wait, run, processors, …, estimate.
SWF = """\
; MaxNodes: 4
; MaxProcs: 16
1 0 5 100 8 -1 -1 8 200 -1 1 1 1 -1 1 1 -1 -1
2 10 0 300 4 -1 -1 4 200 -1 1 1 1 -1 1 1 -1 -1
3 20 0 -1 4 -1 -1 4 200 -1 1 1 1 -1 1 1 -1 -1
4 30 0 10 32 -1 -1 4 200 -1 1 1 1 -1 1 1 -1 -1
"""
SACCT = """\
JobID|Submit|Start|End|AllocCPUS|Timelimit|State
7|2026-01-01T10:00:00|2026-01-01T10:01:00|2026-01-01T10:11:00|8|01:00:00|COMPLETED
7.batch|2026-01-01T10:01:00|2026-01-01T10:01:00|2026-01-01T10:11:00|4||COMPLETED
8|2026-01-01T10:02:00|2026-01-01T10:05:00|2026-01-01T10:06:00|4|1-00:00:00|CANCELLED by 0
9|2026-01-01T10:03:00|Unknown|Unknown|0|UNLIMITED|PENDING
10|2026-01-01T10:04:00|2026-01-01T11:00:00|2026-01-01T11:00:30|4|UNLIMITED|COMPLETED
"""
PBS = """\
01/01/2026 10:00:00;Q;1.server;queue=workq
01/01/2026 10:11:00;E;1.server;user=ada group="a b" ctime=100 qtime=100 etime=100 start=160 \
exec_host=n1/0*4 Resource_List.ncpus=4 Resource_List.nodect=1 Resource_List.walltime=01:00:00 \
end=760 Exit_status=0 resources_used.walltime=00:10:00
"""
SAMPLES = """\
100
invokers:
low up 12:00:00 2 idle p[08-09]
----
110
invokers: p08
low up 12:00:00 1 idle p11
----
130
invokers:
----
"""


def put(folder: Path, text: str, name: str = "trace") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def workload(path: Path, shape: Shape | None = None) -> Workload:
    found = load(path, shape=shape)
    assert isinstance(found, Workload)
    return found


def test_swf_is_read_by_its_rules(tmp_path: Path) -> None:
    """
    What has no runtime or is too large is dropped; what ran too long was ended at its limit.
    """
    found = workload(put(tmp_path, SWF))

    assert [("1", 0, 8, 100, 200), ("2", 10, 4, 200, 300)] == [
        (job.id, job.submit, job.processors, job.runtime, job.limit) for job in found.jobs
    ]
    assert (4, 4, 2) == (found.nodes, found.cores_per_node, found.dropped)
    assert [2, 1] == [found.nodes_of(job) for job in found.jobs]
    assert any("4 processors" in guess for guess in found.guesses)


def test_packed_is_the_same_as_plain(tmp_path: Path) -> None:
    """
    Whatever the file is called.
    """
    packed = tmp_path / "trace"
    packed.write_bytes(gzip.compress(SWF.encode()))
    plain = put(tmp_path, SWF, "plain")

    assert workload(plain).jobs == workload(packed).jobs


def test_a_given_shape_is_not_guessed(tmp_path: Path) -> None:
    """
    Nodes and their processors are as the one who asks says.
    """
    found = workload(put(tmp_path, SWF), Shape(nodes=40, cores_per_node=1))

    assert (40, 1, ()) == (found.nodes, found.cores_per_node, found.guesses)
    assert 3 == len(found.jobs)


def test_sacct_is_read_by_the_names_of_its_columns(tmp_path: Path) -> None:
    """
    Steps belong to their jobs, what never started is dropped, no limit is a year.
    """
    found = workload(put(tmp_path, SACCT))

    assert [("7", 8, 600, 3600), ("8", 4, 60, 86400), ("10", 4, 30, 365 * 86400)] == [
        (job.id, job.processors, job.runtime, job.limit) for job in found.jobs
    ]
    assert (12, 1) == (found.nodes, found.dropped)


def test_pbs_is_read_from_the_ends_of_jobs(tmp_path: Path) -> None:
    """
    Only records E say all.
    """
    (job,) = workload(put(tmp_path, PBS)).jobs

    assert ("1.server", 100, 4, 600, 3600) == (
        job.id,
        job.submit,
        job.processors,
        job.runtime,
        job.limit,
    )


def test_samples_make_gaps(tmp_path: Path) -> None:
    """
    From the first sample that has a node to the first without, pilots included.
    """
    found = load(put(tmp_path, SAMPLES))

    assert isinstance(found, Samples)
    assert {("p08", 100, 130), ("p09", 100, 110), ("p11", 110, 130)} == {
        (gap.node, gap.begin, gap.end) for gap in found.gaps
    }


@pytest.mark.parametrize(
    ("text", "form", "what"),
    [
        ("what is this", None, "say --format"),
        ("1 2 3\n", Format.SWF, "line 1 is not SWF: 3 columns"),
        ("1 0 5 x 8 -1 -1 8 200 -1 1 1 1 -1 1 1 -1 -1\n", Format.SWF, "line 1"),
        ("JobID|Submit\n1|2026-01-01T10:00:00\n", Format.SACCT, "no column Start"),
        (SACCT.replace("|8|01", "|many|01"), None, "line 2 is not sacct's"),
        ("01/01/2026 10:11:00;E;1;start=x end=2\n", Format.PBS, "line 1"),
        ("", Format.SWF, "no job"),
        ("100\n----\n", Format.IDLE_SAMPLES, "no two samples"),
    ],
)
def test_what_makes_no_sense_is_told(
    tmp_path: Path, text: str, form: Format | None, what: str
) -> None:
    """
    With the file, the line and what to do.
    """
    with pytest.raises(TraceError, match=what):
        load(put(tmp_path, text), form)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    """
    As any other trouble with a trace.
    """
    with pytest.raises(TraceError, match="cannot be read"):
        load(tmp_path / "nothing")


def test_costs_are_what_the_benchmark_measured(tmp_path: Path) -> None:
    """
    The line through the smallest and the largest job: 0.1 s and 10 ms for each MiB.
    """
    moves = [
        {"mib": mib, "median": {"checkpoint": 0.1 + mib / 100, "resume": 0.2 + mib / 50}}
        for mib in (64, 512, 2048)
    ]
    costs = load_costs(put(tmp_path, json.dumps({"moves": moves, "ticks": []})))

    assert pytest.approx(5.1 + 5.02) == costs.checkpoint(500) + costs.checkpoint(492)
    assert pytest.approx(10.2) == costs.resume(500)


@pytest.mark.parametrize(
    "text", ["no", "[]", '{"speed": 1}', '{"start_seconds": -1}', '{"moves": [{"mib": 1}]}']
)
def test_costs_that_make_no_sense_are_told(tmp_path: Path, text: str) -> None:
    """
    Nothing is put in their place.
    """
    with pytest.raises(CostsError):
        load_costs(put(tmp_path, text))


def test_costs_may_be_given_in_part(tmp_path: Path) -> None:
    """
    The rest is as it was measured in the project.
    """
    costs = load_costs(put(tmp_path, '{"start_seconds": 7}'))

    assert Costs(start_seconds=7) == costs


def test_a_list_of_jobs_without_sense_is_told(tmp_path: Path) -> None:
    """
    As any other trouble with a trace.
    """
    with pytest.raises(TraceError, match="no list of jobs"):
        Supply.of_file(put(tmp_path, "seconds\n-1\n"), begin=0)
