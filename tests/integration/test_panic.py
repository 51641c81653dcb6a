"""``stopgap panic`` on real parts: from the command to the empty cgroups in five seconds."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.service_jobs import TRACER, Steady
from tests.integration.service_kit import QUICK, Service
from tests.testbed import wait_until

pytestmark = pytest.mark.bed

LIMIT_SECONDS = 5.0


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service.start(nodes=2, settings=QUICK) as service:
        yield service


def test_a_node_is_emptied_in_seconds(service: Service) -> None:
    """
    One job is saved, one cannot be and is killed; both go on elsewhere, and nothing comes back.
    """
    service.cli("node", "drain", "n2")
    good, bad = Steady(service, "saveable"), Steady(service, "unsaveable", TRACER)
    for job in (good, bad):
        assert "n1" == service.wait_node(job.job)
        job.wait_progress()
    service.cli("node", "undrain", "n2")

    with ThreadPoolExecutor(1) as pool:
        began = time.monotonic()
        said = pool.submit(service.cli, "panic", "--yes", "--json", "n1")
        wait_until(lambda: not service.on_node("n1"), 30, "an empty node", every=0.01)
        seconds = time.monotonic() - began
        (told,) = json.loads(said.result().stdout)
    print(f"empty after {seconds:.2f} s, proven after {told['seconds']:.2f} s")

    assert (True, 1, 1) == (told["empty"], told["evicted"], told["killed"])
    assert seconds < LIMIT_SECONDS, seconds
    for job in (good, bad):
        assert "n2" == service.wait_node(job.job, other_than="n1")
        job.wait_progress()
    assert 0 == service.job(good.job)["lost_seconds"]
    assert service.job(bad.job)["lost_seconds"] > 0

    # Another daemon keeps the node empty, although it is the only one left.
    service.bed.kill("stopgapd")
    service.bed.restart("stopgapd")
    service.cli("node", "drain", "n2")
    service.wait_state(good.job, "parked")
    assert not service.on_node("n1")
    assert "n1 over" in service.cli("panic", "--over", "n1").stdout
    for job in (good, bad):
        assert "n1" == service.wait_node(job.job, other_than="n2")
    good.finish()
    bad.stop()
    service.wait_state(bad.job, "completed")
