"""The whole daemon on PBS: its own adapter, PBS's programs over a model, the fake engine."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from adapters.base import BatchAdapter
from adapters.registry import PbsSettings, create
from daemon.core.types import JobState, NodeName
from migration.fake import Program
from tests.contract.pbs_bench import PbsBench
from tests.stage import Stage

pytestmark = pytest.mark.loop

N1, N2, N3 = (NodeName(f"n{number}") for number in (1, 2, 3))


class PbsStage(Stage):
    """A daemon whose nodes belong to PBS."""

    pbs: PbsBench

    def batch_system(self, nodes: int) -> BatchAdapter:
        self.pbs = PbsBench(self.folder, nodes, self.clock)
        return create(PbsSettings(bin_dir=str(self.pbs.bin_dir)), self.clock)

    def tell_time(self) -> None:
        self.pbs.tell_time()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PbsStage]:
    stage = PbsStage(
        tmp_path, nodes=3, programs={("count",): Program(), ("short",): Program(seconds=9)}
    )
    yield stage
    stage.close()


def test_a_job_moves_out_of_the_way_of_priority_jobs(stage: PbsStage) -> None:
    """
    Each qsub for its node sends it to another one, without a gap, and qdel lets it back.
    """
    job = stage.submit("count")
    stage.settle()
    for _ in range(3):
        stage.run(5)
        node = stage.node(job)
        assert node is not None
        priority = stage.pbs.submit(NodeName(node))
        stage.settle()
        assert stage.state(job) is JobState.RUNNING
        assert node != stage.node(job)
        stage.pbs.end(priority)
    stage.run(3)

    log = stage.counted(job)
    assert list(range(len(log))) == log
    found = stage.job(job)
    assert (3, 3, timedelta()) == (found.evictions, found.migrations, found.lost)


def test_a_full_cluster_parks_the_job_until_a_priority_job_ends(stage: PbsStage) -> None:
    """
    It is saved, waits, and goes on where it stopped.
    """
    job = stage.submit("short")
    stage.settle()
    stage.run(3)
    first = stage.pbs.submit(N1, N2)
    stage.pbs.submit(N3)
    stage.settle()
    assert stage.state(job) is JobState.PARKED

    stage.pbs.end(first)
    stage.run(100, step=20)
    assert (JobState.COMPLETED, 0) == (stage.state(job), stage.job(job).exit_code)
    assert list(range(9)) == stage.counted(job)


def test_what_is_free_and_not_idle_is_left_alone(stage: PbsStage) -> None:
    """
    A partly used node, a node with a suspended job, a node that is kept for a waiting one.
    """
    one_core = f"select=1:ncpus=1:vnode={N1}"
    stage.pbs.run("qsub", "-l", one_core, "-l", "walltime=1:00:00", "job.sh")
    stage.pbs.suspend(stage.pbs.submit(N2))
    stage.pbs.submit(N1, N3)
    job = stage.submit("count")
    stage.run(5)

    assert stage.state(job) is JobState.QUEUED


def test_a_reservation_empties_its_node_in_time(stage: PbsStage) -> None:
    """
    A node is used until shortly before its reservation begins.
    """
    for node in (N2, N3):
        stage.pbs.drain(node)
    stage.look()
    stage.pbs.reserve(N1, maintenance=True, after=600)
    stage.run(3)
    job = stage.submit("count")
    stage.settle()
    assert stage.state(job) is JobState.RUNNING

    stage.run(660, step=60)
    assert stage.state(job) is JobState.PARKED
    assert not stage.engine.living(job)


def test_a_dead_server_starts_nothing_and_keeps_what_runs(stage: PbsStage) -> None:
    """
    Silence is no empty cluster: what runs goes on for its grace time.
    """
    running = stage.submit("count")
    stage.settle()
    stage.pbs.cut()
    waiting = stage.submit("count", memory_mib=8192)
    stage.run(30, step=10)

    assert stage.state(running) is JobState.RUNNING
    assert stage.state(waiting) is JobState.QUEUED
    assert "cannot connect to server vm" in stage.observer.batch_trouble

    stage.run(600, step=60)
    assert stage.state(running) is JobState.PARKED
    stage.pbs.restore()
    stage.settle()
    assert stage.state(running) is JobState.RUNNING
