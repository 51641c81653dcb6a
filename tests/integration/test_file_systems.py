"""A file system that fails its jobs: full, or with links that lead astray."""

import subprocess
from collections.abc import Iterator

import pytest

from tests.integration.service_jobs import Steady
from tests.integration.service_kit import Service
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


def test_a_full_disk_lets_the_job_go_on(service: Service) -> None:
    """
    Where nothing can be saved a job whose node is wanted no more goes on without a gap.
    """
    job = Steady(service, "full")
    node = service.wait_node(job.job)
    folder = service.store_of(job.job)
    folder.mkdir(mode=0o700, exist_ok=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k,mode=0700", "full", str(folder)], check=True
    )
    try:
        service.cli("node", "drain", node)
        wait_until(
            lambda: "No space left" in service.job(job.job)["reason"], 60, "a checkpoint to fail"
        )
        service.cli("node", "undrain", node)
        assert node == service.wait_node(job.job)
        job.wait_progress()
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
    job.finish()
    found = service.job(job.job)
    assert (1, 0, 0) == (len(found["segments"]), found["evictions"], found["lost_seconds"])
