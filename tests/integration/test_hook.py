"""No priority job ever meets a process of ours on its node, whatever has become of the daemon."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from daemon.api.client import ClientRefusedError
from tests.integration.service_jobs import TRACER, Steady, read_text
from tests.integration.service_kit import QUICK, Service, story
from tests.testbed import wait_until

pytestmark = pytest.mark.bed

SETTINGS: dict[str, dict[str, object]] = {
    **QUICK,
    "nodes": {"hook_seconds": 120, "hook_unreachable_seconds": 3},
}

#: Looks as its first instruction, and then for as long as it runs.  A process that is dead
#: and not yet buried is none.
LOOK = """
see() {{
    for place in $(grep -ls '/stopgap/{instance}/{node}/' /proc/[0-9]*/cgroup); do
        grep -qs 'State:.[ZX]' ${{place%cgroup}}status || cat $place ${{place%cgroup}}cmdline
    done 2>/dev/null
}}
first=$(see)
echo "first:$first" >{told}
i=0
while [ $i -lt 60 ]; do i=$((i+1)); see >>{told}; sleep .05; done
echo end >>{told}
"""


class PriorityJob:
    """A job of Slurm's that looks for processes of ours."""

    def __init__(self, service: Service, node: str) -> None:
        self.told = service.bed.data / f"told.{len(list(service.bed.data.iterdir()))}"
        script = LOOK.format(instance=service.bed.layout.instance, node=node, told=self.told)
        self.number = service.claim(node, script, f"--output={self.told}.out")

    def wait_begun(self, seconds: float = 60) -> None:
        wait_until(lambda: read_text(self.told), seconds, f"priority job {self.number} to begin")

    def assert_alone(self, seconds: float = 90) -> None:
        """It ran to its end and has seen nobody."""
        wait_until(
            lambda: read_text(self.told).endswith("end\n"), seconds, f"priority job {self.number}"
        )
        assert "first:\nend\n" == read_text(self.told)


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service.start(settings=SETTINGS) as service:
        yield service


@pytest.fixture
def steady(service: Service, request: pytest.FixtureRequest) -> Iterator[Steady]:
    """A job that makes progress, and a bed in order after the test."""
    job = Steady(service, re.sub(r"\W+", "-", request.node.name).strip("-"))
    service.wait_node(job.job)
    job.wait_progress()
    yield job
    restore(service)
    job.stop()
    service.api.cancel(job.job) if service.job(job.job)["ended"] is None else None
    wait_until(lambda: not service.segments(), 60, "the nodes to be empty")


@pytest.fixture
def only_n1(service: Service) -> Iterator[None]:
    """The other node is closed."""
    service.cli("node", "drain", "n2")
    wait_until(lambda: not service.on_node("n2"), 60, "n2 to be empty")
    yield
    service.cli("node", "undrain", "n2")


def restore(service: Service) -> None:
    """Bring the daemon back if it is away."""
    daemon = service.bed.process("stopgapd")
    if daemon is None:
        service.bed.start_daemon()
    else:
        daemon.kill(signal.SIGCONT)


def test_daemon_alive(service: Service, steady: Steady) -> None:
    """
    The job is saved before the priority job begins, and goes on elsewhere.
    """
    node = service.wait_node(steady.job)
    priority = PriorityJob(service, node)

    priority.assert_alone()
    service.wait_segment(steady.job, 2)
    steady.finish()
    assert 0 == service.job(steady.job)["lost_seconds"]


def _kill(service: Service) -> None:
    service.bed.kill("stopgapd")


def _hang(service: Service) -> None:
    daemon = service.bed.process("stopgapd")
    assert daemon is not None
    daemon.kill(signal.SIGSTOP)


@pytest.mark.parametrize("away", [_kill, _hang])
def test_daemon_away(service: Service, steady: Steady, away: Callable[[Service], None]) -> None:
    """
    The node's own hook empties it; the job starts again when the daemon is back.
    """
    node = service.wait_node(steady.job)
    away(service)
    priority = PriorityJob(service, node)

    priority.assert_alone()
    assert not service.segments()
    restore(service)
    service.wait_segment(steady.job, 2)
    steady.wait_progress()
    steady.finish()
    found = service.job(steady.job)
    assert found["lost_seconds"] > 0, story(found)
    assert ["crashed", "completed"] == [s["outcome"] for s in found["segments"]], story(found)


def test_daemon_comes_back_in_time(service: Service, steady: Steady) -> None:
    """
    A daemon that hangs only for a moment still saves the job, which the hook keeps frozen.
    """
    node = service.wait_node(steady.job)
    _hang(service)
    priority = PriorityJob(service, node)
    wait_until(lambda: _prologs(service, node), 60, "the prolog", every=0.005)
    restore(service)

    priority.assert_alone()
    service.wait_segment(steady.job, 2)
    steady.finish()
    assert 0 == service.job(steady.job)["lost_seconds"]


def test_hook_that_is_killed(service: Service, steady: Steady) -> None:
    """
    A hook that loses its process begins again: the priority job still waits for the end of ours.
    """
    node = service.wait_node(steady.job)
    _hang(service)
    priority = PriorityJob(service, node)
    for pid in wait_until(lambda: _prologs(service, node), 60, "the prolog", every=0.005):
        os.kill(pid, signal.SIGKILL)
    restore(service)

    priority.assert_alone()
    service.wait_segment(steady.job, 2)
    steady.finish()


def _prologs(service: Service, node: str) -> list[int]:
    """Return the hooks that are at work on a node."""
    program = f"{service.bed.layout.install_dir(node)}/stopgap-runc\0stopgap\0prolog"
    found = (p for p in Path("/proc").glob("[0-9]*/cmdline") if program in read_text(p))
    return [int(path.parent.name) for path in found]


@pytest.mark.parametrize("moment", ["queued", "starting", "container", "cgroup", "running"])
@pytest.mark.usefixtures("only_n1")
def test_job_that_is_being_placed(service: Service, moment: str) -> None:
    """
    A claim in the midst of a start: the start is refused, or the job is moved.
    """
    folder = service.bed.layout.node("n1") / "docker/containers"
    before = set(folder.iterdir())
    job = Steady(service, f"placed-{moment}")
    moments: dict[str, Callable[[], bool]] = {
        "queued": lambda: True,
        "starting": lambda: service.job(job.job)["state"] != "queued",
        "container": lambda: bool(set(folder.iterdir()) - before),
        "cgroup": lambda: ("n1", job.job, 1) in service.segments(),
        "running": lambda: service.job(job.job)["state"] == "running",
    }
    wait_until(moments[moment], 60, f"the moment {moment}", every=0.002)
    priority = PriorityJob(service, "n1")

    priority.assert_alone()
    service.wait_node(job.job)
    job.wait_progress()
    job.finish()
    assert 0 == service.job(job.job)["lost_seconds"]


@pytest.mark.usefixtures("only_n1")
def test_canary_gives_way(service: Service) -> None:
    """
    The canary of a probe leaves at once, and the node is not blamed for its end.
    """
    with ThreadPoolExecutor(1) as pool:
        probing = pool.submit(service.api.probe, "n1")
        wait_until(lambda: service.on_node("n1"), 60, "the canary", every=0.005)
        priority = PriorityJob(service, "n1")
        priority.wait_begun()
        priority.assert_alone()
        with suppress(ClientRefusedError):
            probing.result()
    job = Steady(service, "after-canary")
    service.wait_node(job.job)
    job.finish()


def test_vacate_by_an_administrator(service: Service, steady: Steady) -> None:
    """
    ``stopgap vacate`` returns when the node is empty; the job has been saved.
    """
    node = service.wait_node(steady.job)
    said = service.cli("vacate", "--node", node, "--wait", "30").stdout

    assert f"{node} is empty after" in said
    assert "1 evicted, 0 killed" in said
    assert not service.on_node(node)
    service.wait_node(steady.job, other_than=node)
    steady.finish()
    assert 0 == service.job(steady.job)["lost_seconds"]


def test_vacate_kills_when_the_time_is_up(service: Service) -> None:
    """
    What cannot be saved in time is killed, counted as lost, and begins again elsewhere.
    """
    job = Steady(service, "unsaveable", TRACER)
    node = service.wait_node(job.job)
    job.wait_progress()
    said = service.cli("vacate", "--node", node, "--wait", "3").stdout

    assert "0 evicted, 1 killed" in said
    assert not service.on_node(node)
    service.wait_segment(job.job, 2)
    job.wait_progress()
    job.stop()
    service.wait_state(job.job, "completed")
    assert service.job(job.job)["lost_seconds"] > 0
