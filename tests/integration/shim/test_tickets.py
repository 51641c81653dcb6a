"""What the shim refuses to create, and what it lets pass."""

import time
from collections.abc import Callable

import pytest

from tests.integration.shim.jobs import SLEEP
from tests.integration.shim.kit import EngineSaidError, ShimNode

pytestmark = pytest.mark.bed


def _unsigned(node: ShimNode, job: int) -> list[str]:
    payload, _, _ = node.ticket(job, 1).partition(".")
    return [f"STOPGAP_TICKET={payload}.{'0' * 64}"]


REFUSALS: dict[str, tuple[Callable[[ShimNode, int], list[str]], str]] = {
    "unsigned": (_unsigned, "not signed with this node's key"),
    "other-node": (
        lambda n, j: [f"STOPGAP_TICKET={n.ticket(j, 1, node='elsewhere')}"],
        "the ticket is for node elsewhere",
    ),
    "other-instance": (
        lambda n, j: [f"STOPGAP_TICKET={n.ticket(j, 1, instance='other')}"],
        "of other",
    ),
    "wrong-epoch": (lambda n, j: [f"STOPGAP_TICKET={n.ticket(j, 2)}"], "cgroup parent"),
    "wrong-uid": (lambda n, j: [f"STOPGAP_TICKET={n.ticket(j, 1, uid=7)}"], "uid 7"),
    "expired": (
        lambda n, j: [f"STOPGAP_TICKET={n.ticket(j, 1, expires=time.time() - 1)}"],
        "expired",
    ),
    "future": (
        lambda n, j: [f"STOPGAP_TICKET={n.ticket(j, 1, seen=time.time() + 60)}"],
        "from the future",
    ),
    "odd-name": (
        lambda n, j: [f"STOPGAP_TICKET={n.ticket(j, 1)}", "STOPGAP_TICKET2=x"],
        "the only variable",
    ),
    "empty": (lambda _n, _j: ["STOPGAP_TICKET="], "not signed"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_bad_ticket_is_refused_with_its_reason(one: ShimNode, job: int, name: str) -> None:
    """
    Nothing is started with a ticket that is not exactly right, and Docker says why.
    """
    env, words = REFUSALS[name]
    container = one.create(job, 1, SLEEP, env=env(one, job))

    with pytest.raises(EngineSaidError, match=words):
        one.start(container)

    assert [] == one.processes(job, 1)


def test_ticket_is_good_once(one: ShimNode, job: int) -> None:
    """
    ``docker restart`` by anybody starts nothing a second time.
    """
    container = one.run(job, 1, SLEEP)

    with pytest.raises(EngineSaidError, match="used before"):
        one.api("POST", f"/containers/{container}/restart?t=0")

    assert [] == one.processes(job, 1)


def test_job_does_not_see_its_ticket(one: ShimNode, job: int) -> None:
    """
    The variable is gone before the job's first instruction.
    """
    container = one.run(job, 1, ["env"])
    one.wait(container)

    assert b"PATH=" in one.logs(container)
    assert b"STOPGAP" not in one.logs(container)


def test_other_containers_pass_through(one: ShimNode, job: int) -> None:
    """
    Without a ticket the runtime is runc.
    """
    container = one.run(job, 1, ["sh", "-c", "echo it works; exit 7"], env=[])

    assert 7 == one.wait(container)
    assert b"it works\n" == one.logs(container)


def test_ticket_older_than_the_prolog_is_refused(one: ShimNode, job: int) -> None:
    """
    A look at the batch system from before a prolog proves nothing any more.
    """
    early = one.ticket(job, 1)
    one.prolog()
    container = one.create(job, 1, SLEEP, env=[f"STOPGAP_TICKET={early}"])

    with pytest.raises(EngineSaidError, match="a prolog has claimed this node"):
        one.start(container)

    assert [] == one.processes(job, 1)
