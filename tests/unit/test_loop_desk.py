"""What callers are told, with a whole loop behind the desk."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from daemon.api.ports import Caller, Refused
from daemon.api.schemas import JobRequest
from daemon.config import CheckpointsSection, Config, JobsSection
from daemon.core.types import CheckpointMode, JobState, Movable, NodeName
from daemon.desk.desk import Desk
from daemon.desk.hooks import HookGuard
from daemon.desk.pulse import Pulse
from daemon.workshop import NodeWorkshop
from migration.base import Fingerprint
from migration.fake import Program
from migration.nodes import Step
from migration.probe import Probe
from tests.stage import FakeProber, Stage

pytestmark = pytest.mark.loop

ADA = Caller(uid=1000, gid=1000, pid=1, name="ada", groups=(), is_admin=False)
ROOT = Caller(uid=0, gid=0, pid=1, name="root", groups=(), is_admin=True)
COUNT = JobRequest(image="img:1", command=("count",))
PROGRAMS: dict[tuple[str, ...], Program] = {
    ("count",): Program(),
    ("stubborn",): Program(dumpable=False, obstacle="it traces its child 12"),
}


class TurningPulse(Pulse):
    """Has the loop look whenever somebody wakes it."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(instance="test", adapter=stage.batch)
        self._stage = stage
        self.watch(stage.observer)

    def wake(self) -> None:
        self._stage.look()


class Shelf(FakeProber):
    """A workshop's tools that nobody uses here."""

    def setup(self, node: NodeName, *, dry_run: bool) -> tuple[Step, ...]:
        return ()

    def clear(self, node: NodeName) -> None:
        pass


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path, programs=PROGRAMS)
    yield stage
    stage.close()


@pytest.fixture
def desk(stage: Stage) -> Desk:
    shelf = Shelf()
    return Desk(
        tools=stage.tools,
        config=Config(jobs=JobsSection(allow_root=True)),
        policy=stage.policy,
        workshop=NodeWorkshop(shelf, shelf),  # type: ignore[arg-type]  # its canaries are not asked
        guard=HookGuard(lambda _node, _body, _signature: True),
        pulse=TurningPulse(stage),
    )


class Known(Shelf):
    """Tools that know what a node can do."""

    def __init__(self, *, incremental: bool | None, zstd: str | None) -> None:
        super().__init__()
        self._facts = (incremental, zstd)

    def fingerprint(self, node: NodeName) -> Fingerprint:
        incremental, zstd = self._facts
        return replace(super().fingerprint(node), incremental=incremental, zstd=zstd)

    def probe(self, node: NodeName) -> Probe:  # type: ignore[override]  # with all that is told
        return Probe(passed=True, reason="", other_users=True, figures=(), seconds=0.0)


@pytest.mark.parametrize(
    ("compress", "incremental", "zstd", "told"),
    [
        ("none", True, "1.5.4", ("yes", "none")),
        ("zstd", False, "1.5.4", ("no, this kernel does not track changed pages", "zstd")),
        ("zstd", True, "", ("yes", "none, this node has no zstd: install it")),
        ("zstd", None, None, ("not known, its shim is an earlier one", "none, this node has")),
    ],
)
def test_a_probe_says_what_a_checkpoint_writes(
    desk: Desk,
    compress: Literal["none", "zstd"],
    incremental: bool | None,
    zstd: str | None,
    told: tuple[str, str],
) -> None:
    """
    All or what has changed, compressed or not, and what to do about it.
    """
    known = Known(incremental=incremental, zstd=zstd)
    config = Config(checkpoints=CheckpointsSection(compress=compress))
    desk = replace(desk, config=config, workshop=NodeWorkshop(known, known))

    said = desk.probe(ROOT, "n1").fingerprint

    assert said["incremental"].startswith(told[0])
    assert said["compress"].startswith(told[1])


def test_what_is_quick_is_answered_when_it_is_done(stage: Stage, desk: Desk) -> None:
    """
    Whoever holds, releases or cancels a job that waits reads how it is afterwards.
    """
    stage.claim("n1", "n2")
    job = desk.submit(ADA, COUNT).id

    assert JobState.HELD is desk.hold(ADA, job).state
    assert JobState.QUEUED is desk.release(ADA, job).state
    assert JobState.CANCELLED is desk.cancel(ADA, job).state
    assert "already_cancelled" == desk.cancel(ADA, job).result


def test_a_job_on_a_node_is_cancelled_at_once(stage: Stage, desk: Desk) -> None:
    """
    A node that answers needs no patience.
    """
    job = desk.submit(ADA, COUNT).id
    stage.settle()

    assert JobState.CANCELLED is desk.cancel(ADA, job).state


def test_a_cancelled_job_out_of_reach_says_what_it_waits_for(stage: Stage, desk: Desk) -> None:
    """
    And who can end the wait.
    """
    job = desk.submit(ADA, COUNT).id
    stage.run(5)
    node = NodeName(stage.node(job) or "")  # type: ignore[arg-type]  # its number
    stage.engine.cut(node)
    stage.run(stage.policy.silence.total_seconds() + 5)
    answer = desk.cancel(ADA, job)

    assert ("cancelled", JobState.UNREACHABLE) == (answer.result, answer.state)
    assert f"it is cancelled as soon as {node} answers" in answer.reason
    assert f"stopgap node gone {node}" in answer.reason
    assert answer.reason == desk.job(ADA, job).reason

    assert [job] == desk.gone(ROOT, node).jobs
    stage.settle()
    assert JobState.CANCELLED is desk.job(ADA, job).state
    assert [node] == [view.name for view in desk.nodes() if view.gone]
    assert "already_gone" == desk.gone(ROOT, node).result


def test_only_administrators_call_a_silent_node_dead(stage: Stage, desk: Desk) -> None:
    """
    And nobody one that answers.
    """
    stage.settle()
    stage.submit("count")
    stage.settle()
    for caller, node, status in ((ADA, "n1", 403), (ROOT, "n1", 409), (ROOT, "n9", 404)):
        with pytest.raises(Refused) as caught:
            desk.gone(caller, node)
        assert (node, status) == (node, caught.value.status)


def test_what_is_known_of_a_jobs_moves_is_told(stage: Stage, desk: Desk) -> None:
    """
    Before, and after it was tried; those declared otherwise follow their word.
    """
    stubborn = COUNT.model_copy(update={"command": ("stubborn",)})
    signal = COUNT.model_copy(update={"checkpoint": CheckpointMode.SIGNAL})
    jobs = [desk.submit(ADA, wanted).id for wanted in (COUNT, stubborn, signal)]
    early = [desk.job(ADA, job) for job in jobs]
    stage.run(45)
    late = [desk.job(ADA, job) for job in jobs]

    assert [Movable.UNKNOWN, Movable.UNKNOWN, Movable.NO] == [job.movable for job in early]
    assert "no checkpoint yet" in early[0].movable_why
    assert [Movable.YES, Movable.NO, Movable.NO] == [job.movable for job in late]
    assert ["", "it traces its child 12"] == [job.movable_why for job in late[:2]]
    assert "saves itself" in late[2].movable_why
    (line,) = [text for text in desk.status().problems if "cannot be moved" in text]
    assert f": {jobs[1]}" in line
    assert desk.status().healthy


def test_paused_checkpoints_are_told(stage: Stage, desk: Desk) -> None:
    """
    Where the room for checkpoints is taken, the status says so.
    """
    for _ in range(2):
        desk.submit(ADA, COUNT)
    stage.run(45)
    site = replace(stage.policy, max_stored=1 << 20)
    user = replace(stage.policy, max_stored_by_user=1 << 20)

    assert not [text for text in desk.status().problems if "pause" in text]
    (line,) = [text for text in replace(desk, policy=site).status().problems if "pause" in text]
    assert "checkpoints.max_total_gib" in line
    (line,) = [text for text in replace(desk, policy=user).status().problems if "pause" in text]
    assert "checkpoints of 1 users pause" in line
