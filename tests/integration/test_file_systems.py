"""A file system that fails its jobs: not mounted, or with links that lead astray."""

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.integration.life import lives
from tests.integration.service_jobs import Steady
from tests.integration.service_kit import Service, story
from tests.testbed import wait_until

pytestmark = pytest.mark.bed


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service.start(nodes=2) as service:
        yield service


def test_a_link_out_of_the_shared_directory_is_refused(service: Service) -> None:
    """
    A link that leads elsewhere is no way around the list of mounts.
    """
    path = service.bed.data / "way-out"
    path.symlink_to("/etc")
    words = ("submit", "--image", "stopgap/busybox:1", "--mount", f"{path}:/d", "--", "true")
    refused = service.cli(*words, check=False)
    path.unlink()

    assert 1 == refused.returncode
    assert "/etc" in refused.stderr


def test_checkpoints_out_of_sight_are_not_gone(service: Service) -> None:
    """
    An empty mount point is no root without checkpoints: what was saved is waited for.
    """
    job = Steady(service, "out-of-sight")
    source = service.wait_node(job.job)
    job.wait_progress()
    service.api.drain(source)
    target = service.wait_node(job.job, other_than=source)
    job.wait_progress()

    root = str(service.bed.checkpoints)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0700", "hidden", root], check=True)
    try:
        (life,) = [at for at in lives(service.bed) if at.job == job.job and at.pids]
        for pid in life.pids:
            os.kill(pid, signal.SIGKILL)
        wait_until(
            lambda: f"is {root} mounted?" in service.job(job.job)["reason"], 60, "it to be noticed"
        )
        assert target == service.job(job.job)["node"]
    finally:
        subprocess.run(["umount", root], check=True)
    service.api.undrain(source)

    found = service.wait_segment(job.job, 3)
    assert [None, 1, 1] == [segment["resumed_from"] for segment in found["segments"]], story(found)
    job.finish()
