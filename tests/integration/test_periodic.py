"""Jobs that are saved while they run: what is known of them afterwards, and that they go on."""

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.life import Watcher, lives
from tests.integration.service_jobs import HEAVY, TRACER, Steady
from tests.integration.service_kit import QUICK, Service, story
from tests.testbed import wait_until

pytestmark = pytest.mark.bed

_SOON: dict[str, dict[str, object]] = {
    "policy": {
        **QUICK["policy"],
        "trial_seconds": 1,
        "checkpoint_min_seconds": 2,
        "checkpoint_max_seconds": 3,
    }
}

#: Has a connection to somebody who does not come along.
CALLER = """
import os, socket, time
line = socket.socket(socket.AF_UNIX)
line.connect("/data/listener")
count = 0
while not os.path.exists("/data/stop"):
    print("out", count, flush=True)
    print(count, file=open("/data/count", "a"), flush=True)
    count += 1
    time.sleep(0.02)
print("out end", flush=True)
"""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service.start(settings=_SOON) as service:
        yield service


def _known(service: Service, job: int) -> bool:
    return str(service.job(job)["movable"]) != "unknown"


def test_job_is_tried_and_saved_again_and_again(service: Service) -> None:
    """
    It notices nothing, is known to be movable, and never lives twice.
    """
    with Watcher.watching(service.bed):
        job = Steady(service, "often")
        wait_until(lambda: _known(service, job.job), 60, "the trial")
        wait_until(lambda: len(service.job(job.job)["checkpoints"]) >= 3, 60, "three checkpoints")
        job.wait_progress()
        found = service.job(job.job)
        job.finish()

    assert ("yes", "") == (found["movable"], found["movable_why"]), story(found)
    assert ["trial", "periodic", "periodic"] == [c["kind"] for c in found["checkpoints"]][:3]
    assert 1 == len(found["segments"])
    counted = job.counted()
    assert list(range(len(counted))) == counted
    assert not service.store_of(job.job).exists()


def test_saved_job_is_evicted_as_any_other(service: Service) -> None:
    """
    A checkpoint that it went on from is not taken for its end.
    """
    job = Steady(service, "moved")
    wait_until(lambda: _known(service, job.job), 60, "the trial")
    job.wait_progress()
    node = service.wait_node(job.job)
    service.claim(node)
    service.wait_node(job.job, other_than=node)
    job.wait_progress()
    job.finish()

    found = service.job(job.job)
    assert 0 == found["lost_seconds"], story(found)
    kinds = {c["generation"]: c["kind"] for c in found["checkpoints"]}
    assert "evict" == kinds[found["segments"][1]["resumed_from"]]


def test_claim_does_not_wait_for_a_job_that_is_saved(service: Service) -> None:
    """
    Its node is vacated at once, by the same dump if it comes in time, and nothing is lost.
    """
    with Watcher.watching(service.bed):
        job = Steady(service, "overtaken", HEAVY)
        pages = service.store_of(job.job) / "1" / "images" / "pages-1.img"
        wait_until(pages.exists, 60, "the trial to begin", every=0.001)
        node = str(service.job(job.job)["node"])
        service.api.vacate(node, 20)
        service.wait_node(job.job, other_than=node)
        job.wait_progress()
        job.finish()
        # The next test wants all nodes.
        wait_until(lambda: not any(n["claims"] for n in service.api.nodes()), 60, "free nodes")

    found = service.job(job.job)
    assert (0, 1) == (found["lost_seconds"], found["evictions"]), story(found)
    counted = job.counted()
    assert list(range(len(counted))) == counted
    kinds = {c["generation"]: c["kind"] for c in found["checkpoints"]}
    assert "evict" == kinds[found["segments"][1]["resumed_from"]]


@pytest.mark.parametrize("moment", ["images/pages-1.img", "manifest.json"])
def test_daemon_that_dies_while_a_job_is_saved(service: Service, moment: str) -> None:
    """
    The job goes on under the next one, and a crash then costs no more than it had to.
    """
    with Watcher.watching(service.bed):
        job = Steady(service, moment.partition(".")[0].replace("/", "-"))
        reached = service.store_of(job.job) / "1" / moment
        wait_until(reached.exists, 60, f"{moment} of the trial", every=0.001)
        service.bed.kill("stopgapd")
        service.bed.start_daemon()
        service.wait_node(job.job)
        job.wait_progress()
        (life,) = [at for at in lives(service.bed) if at.job == job.job and at.pids]
        for pid in life.pids:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: len(service.job(job.job)["segments"]) > 1, 60, "the next segment")
        service.wait_node(job.job)
        job.wait_progress()
        job.finish()

    found = service.job(job.job)
    counted = job.counted()
    assert list(range(len(counted))) == counted
    assert found["segments"][-1]["resumed_from"] is not None, story(found)
    assert found["lost_seconds"] < 30


@pytest.mark.parametrize(
    ("program", "told"),
    [(CALLER, "a unix socket"), (TRACER, "is traced by")],
    ids=["line", "trace"],
)
def test_job_that_cannot_be_moved_is_told_why(service: Service, program: str, told: str) -> None:
    """
    Before anybody wants its node; and it goes on.
    """
    name = told.replace(" ", "-")
    with _listener(service.bed.data / name / "listener") as listen:
        job = Steady(service, name, program)
        listen()
        wait_until(lambda: _known(service, job.job), 60, "the trial")
        found = service.job(job.job)
        # It is tried again and again, and comes to no harm by it.
        job.wait_progress(more=200)
        job.stop()
        service.wait_state(job.job, "completed")

    assert "no" == found["movable"], story(found)
    assert told in found["movable_why"]
    assert "cannot be moved" in found["reason"]
    assert found["movable_why"] in service.cli("show", str(job.job)).stdout
    assert ["not_kept"] == [e["event"] for e in found["events"]][-1:]


@contextmanager
def _listener(path: Path) -> Iterator[Callable[[], None]]:
    """Listen outside of all containers, as soon as the job's folder is there."""
    server = socket.socket(socket.AF_UNIX)
    kept: list[socket.socket] = []

    def listen() -> None:
        server.bind(str(path))
        server.listen()
        threading.Thread(target=lambda: kept.append(server.accept()[0]), daemon=True).start()

    try:
        yield listen
    finally:
        for connection in kept:
            connection.close()
        server.close()
