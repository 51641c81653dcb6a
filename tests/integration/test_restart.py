"""A daemon that is stopped leaves containers alone, and the next one goes on where it was."""

import signal
from collections.abc import Iterator

import pytest

from tests.integration import kills
from tests.integration.kills import EVICTION, Move
from tests.integration.life import Watcher
from tests.integration.service_jobs import Steady
from tests.integration.service_kit import QUICK, Service, story
from tests.testbed import wait_until

pytestmark = pytest.mark.bed


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    # The hook must not lose patience before the daemon is back.
    with Service.start(settings={**QUICK, "nodes": {"hook_unreachable_seconds": 60}}) as service:
        yield service


@pytest.fixture(autouse=True)
def tidy(service: Service) -> Iterator[None]:
    """The daemon is there, the nodes are open and empty."""
    yield
    kills.revive(service)
    for job in service.api.jobs(all_users=True):
        service.api.cancel(job["id"])
    service.cli("node", "undrain", *service.bed.nodes)
    wait_until(lambda: not kills.leftovers(service), 60, "the nodes to be empty")


def stop(service: Service) -> None:
    """Stop the daemon as systemd does."""
    service.bed.stop_daemon()
    assert service.bed.process("stopgapd") is None


def test_running_job_is_adopted(service: Service) -> None:
    """
    The same processes, the same segment, no gap, and nobody calls the job lost meanwhile.
    """
    job = Steady(service, "adopted")
    service.wait_node(job.job)
    job.wait_progress()
    before = service.segments()
    stop(service)
    assert before == service.segments()
    job.wait_progress(more=30)
    service.bed.start_daemon()
    found = service.wait_state(job.job, "running")
    job.wait_progress()

    assert before == service.segments()
    job.finish()
    found = service.job(job.job)
    assert [1] == [s["epoch"] for s in found["segments"]]
    assert (0, 0) == (found["lost_seconds"], found["evictions"])
    expected = ["submit", "start", "placed", "completed"]
    assert expected == [e["event"] for e in found["events"]], story(found)


def test_end_without_a_daemon_is_found_out(service: Service) -> None:
    """
    A job that ended while nobody looked has its own exit code and its whole log.
    """
    job = Steady(service, "ended")
    service.wait_node(job.job)
    job.wait_progress()
    stop(service)
    job.stop()
    wait_until(lambda: not service.segments(), 60, "the job to end")
    service.bed.start_daemon()

    job.finish()
    assert 0 == service.job(job.job)["exit_code"]


@pytest.mark.parametrize("moment", ["frozen", "pages", "committed"])
def test_eviction_under_way_is_finished(service: Service, moment: str) -> None:
    """
    What was begun is done before the daemon ends, and the job goes on under the next one.
    """
    move = Move(service, f"leaving-{moment}")
    with Watcher.watching(service.bed):
        service.api.drain(move.source)
        kills.wait_moment(move, EVICTION[moment], moment)
        stop(service)
        assert move.exists("1", "manifest.json")
        assert not service.segments()
        service.bed.start_daemon()
        service.wait_node(move.job, other_than=move.source)
        move.steady.finish()

    found = service.job(move.job)
    assert 0 == found["lost_seconds"], story(found)
    assert [None, 1] == [s["resumed_from"] for s in found["segments"]]


def test_claim_while_the_daemon_is_away(service: Service) -> None:
    """
    A daemon that comes back to a claimed node vacates it.
    """
    job = Steady(service, "claimed")
    node = service.wait_node(job.job)
    job.wait_progress()
    stop(service)
    number = service.claim(node)
    wait_until(lambda: kills.frozen(service, node, job.job, 1), 60, "the hook")
    service.bed.start_daemon()

    service.wait_node(job.job, other_than=node)
    wait_until(
        lambda: not service.bed.run(["squeue", "--noheader", "--job", number], check=False).stdout,
        60,
        "the priority job to end",
    )
    job.finish()
    assert 0 == service.job(job.job)["lost_seconds"]


def test_second_signal_changes_nothing(service: Service) -> None:
    """
    SIGTERM and SIGINT while it stops are no reason to leave anything half done.
    """
    move = Move(service, "twice")
    service.api.drain(move.source)
    kills.wait_moment(move, EVICTION["frozen"], "the freeze")
    daemon = service.bed.process("stopgapd")
    assert daemon is not None
    daemon.kill(signal.SIGTERM)
    daemon.kill(signal.SIGINT)
    daemon.kill(signal.SIGTERM)
    stop(service)
    assert move.exists("1", "manifest.json")
    service.bed.start_daemon()

    service.wait_node(move.job, other_than=move.source)
    move.steady.finish()
    assert 0 == service.job(move.job)["lost_seconds"]
