"""The whole daemon on Slurm's text: its own adapter, mock-Slurm's shims, the fake engine."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from adapters.base import BatchAdapter
from adapters.registry import SlurmSettings, create
from daemon.core.types import JobState, NodeName
from migration.fake import Program
from tests.contract.shims_bench import ShimsBench
from tests.stage import Stage

pytestmark = pytest.mark.loop


class ShimsStage(Stage):
    """A daemon whose nodes belong to a Slurm that is programs over a model."""

    shims: ShimsBench

    def batch_system(self, nodes: int) -> BatchAdapter:
        self.shims = ShimsBench(self.folder, "24.11.5", nodes, self.clock)
        return create(SlurmSettings(bin_dir=str(self.shims.bin_dir)), self.clock)

    def tell_time(self) -> None:
        self.shims.tell_time()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[ShimsStage]:
    stage = ShimsStage(tmp_path, nodes=2, programs={("count",): Program()})
    yield stage
    stage.close()


def test_a_job_moves_out_of_the_way_of_priority_jobs(stage: ShimsStage) -> None:
    """
    Each sbatch for its node sends it to the other one, and scancel lets it back.
    """
    job = stage.submit("count")
    stage.settle()
    for _ in range(2):
        stage.run(3)
        node = stage.node(job)
        assert node is not None
        priority = stage.shims.submit(NodeName(node))
        stage.settle()
        assert stage.state(job) is JobState.RUNNING
        assert node != stage.node(job)
        stage.shims.end(priority)
    stage.run(3)

    log = stage.counted(job)
    assert list(range(len(log))) == log
    found = stage.job(job)
    assert (2, 2, timedelta()) == (found.evictions, found.migrations, found.lost)


def test_a_claim_is_heeded_although_the_jobs_are_not_told(stage: ShimsStage) -> None:
    """
    squeue fails, and scontrol says that the node is given away.
    """
    job = stage.submit("count")
    stage.settle()
    node = stage.node(job)
    assert node is not None
    stage.shims.submit(NodeName(node))
    (stage.shims.bin_dir / "squeue").write_text("#!/bin/sh\necho sorry >&2\nexit 1\n")
    stage.run(3)

    assert stage.state(job) is JobState.PARKED
    assert "sorry" in stage.observer.batch_trouble
