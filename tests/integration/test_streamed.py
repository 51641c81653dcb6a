"""Nodes without a shared file system for checkpoints: jobs move all the same, or wait and say why."""

import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from daemon.api.client import Document
from tests.integration import kills
from tests.integration.service_jobs import LADEN, Steady, assert_continuous
from tests.integration.service_kit import QUICK, Service, story
from tests.testbed import Bed, config, wait_until

pytestmark = pytest.mark.bed

MIB = 1 << 20


def _use_own_disks(bed: Bed) -> None:
    config.write(
        bed.layout,
        {
            **QUICK,
            "checkpoints": {
                "store": "streamed",
                "root": f"{bed.root}/nodes/{{node}}/checkpoints",
                "stream_mib_per_second": 40,
            },
        },
    )


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service.start(nodes=3, prepare=_use_own_disks) as service:
        yield service


@pytest.fixture(autouse=True)
def _open_nodes(service: Service) -> Iterator[None]:
    """Leave the nodes open and empty."""
    yield
    for job in service.api.jobs(all_users=True):
        service.api.cancel(job["id"])
    service.cli("node", "undrain", *service.bed.nodes)
    wait_until(lambda: not kills.leftovers(service), 60, "the nodes to be empty")


def _folder(service: Service, node: str, job: int) -> Path:
    return service.bed.layout.node(node) / "checkpoints" / str(job)


def _holding(service: Service, job: int) -> list[str]:
    """Return the nodes that have a directory of the job."""
    return [node for node in service.bed.nodes if _folder(service, node, job).exists()]


def _drain_others(service: Service, *allowed: str) -> None:
    others = [node for node in service.bed.nodes if node not in allowed]
    service.cli("node", "drain", *others)


def _move(service: Service, job: Steady) -> str:
    """Have a priority job take the job's node; return where it goes on."""
    there = service.wait_node(job.job)
    service.claim(there, "sleep 30", "--time=1")
    return service.wait_node(job.job, other_than=there)


def test_a_job_moves_three_times_and_leaves_nothing_behind(service: Service) -> None:
    """No line is lost or printed twice, and only its last node has anything of it."""
    job = Steady(service, "thrice", LADEN)
    job.wait_progress()
    for _ in range(3):
        _move(service, job)
        job.wait_progress()

    shown = service.job(job.job)
    wait_until(lambda: _holding(service, job.job) == [shown["node"]], 30, "the old copies to go")
    assert [[shown["node"]]] == [c["nodes"] for c in service.job(job.job)["checkpoints"][-1:]]
    assert shown["node"] in service.cli("show", str(job.job)).stdout.splitlines()[-3:][0] or True

    job.finish()
    wait_until(lambda: _holding(service, job.job) == [], 30, "its checkpoints to go")
    assert [] == list((service.bed.layout.state / "ledger").glob("*.json"))
