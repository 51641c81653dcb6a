"""Whatever goes wrong, in whatever order: never two of a job, never none for good, nothing lost.

Random schedules of accidents on the whole loop with the in-memory engine.  The promises are
read from the engine's processes after every step, and from the jobs' logs at the end.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from daemon.core.history import Change
from daemon.core.types import Job, JobId, JobState, NodeName
from migration.base import EngineError, EngineUnreachableError, NodeUnfitError, NotSavedError
from migration.fake import Program
from tests.stage import Stage

pytestmark = pytest.mark.slow

NODES = tuple(NodeName(f"n{number}") for number in (1, 2, 3))
PROGRAMS: dict[tuple[str, ...], Program] = {("count",): Program()}
EXAMPLES = 400 if os.environ.get("STOPGAP_EXHAUSTIVE") == "1" else 40
#: For a job to come back from the longest pause after faults.
_PATIENCE_SECONDS = 2000.0

_LOST: tuple[tuple[str, EngineError], ...] = (
    ("survey", EngineUnreachableError("no answer")),
    ("place", EngineUnreachableError("no answer")),
    ("place", NodeUnfitError("the node is not in order")),
    ("checkpoint", EngineUnreachableError("no answer")),
    ("checkpoint", NotSavedError("No space left on device", frozen=True)),
    ("freeze", EngineUnreachableError("no answer")),
    ("thaw", EngineUnreachableError("no answer")),
    ("kill", EngineUnreachableError("no answer")),
    ("remove", EngineUnreachableError("no answer")),
    ("logs", EngineUnreachableError("no answer")),
)
#: An error after which the call may have had its effect all the same.
_MAYBE = ("no answer",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accident:
    """Something that happens to a cluster; ``seconds`` pass afterwards."""

    kind: str
    node: NodeName = NODES[0]
    seconds: int = 1
    call: int = 0
    late: bool = False

    def happen(self, stage: Stage) -> None:
        if self.kind == "claim":
            stage.claim(self.node, seconds=float(5 + self.seconds))
        elif self.kind == "drain":
            stage.observer.set_drained(self.node, drained=True)
        elif self.kind == "undrain":
            stage.observer.set_drained(self.node, drained=False)
        elif self.kind == "restart":
            stage.reopen()
        elif self.kind == "fail":
            verb, error = _LOST[self.call]
            late = self.late and str(error) in _MAYBE
            stage.engine.fail(verb, error, node=self.node, late=late)
        else:
            {
                "cut": stage.engine.cut,
                "mend": stage.engine.mend,
                "reboot": stage.engine.reboot,
                "prolog": stage.engine.run_prolog,
            }[self.kind](self.node)


def accidents(*kinds: str) -> st.SearchStrategy[list[Accident]]:
    one = st.builds(
        Accident,
        kind=st.sampled_from(kinds),
        node=st.sampled_from(NODES),
        seconds=st.integers(1, 8),
        call=st.integers(0, len(_LOST) - 1),
        late=st.booleans(),
    )
    return st.lists(one, min_size=3, max_size=25)


@given(
    schedule=accidents(
        "claim", "drain", "undrain", "restart", "fail", "cut", "mend", "reboot", "prolog"
    )
)
@settings(max_examples=EXAMPLES)
def test_no_accident_doubles_or_ends_a_job(schedule: list[Accident]) -> None:
    """
    A job may have to wait, or to do work over; it goes on in the end, with one log.
    """
    with _staged(schedule):
        pass


@given(schedule=accidents("claim", "drain", "undrain", "restart", "fail", "fail", "fail"))
@settings(max_examples=EXAMPLES)
def test_what_only_went_wrong_costs_no_work(schedule: list[Accident]) -> None:
    """
    As long as the nodes live and answer again, nothing is computed twice.
    """
    with _staged(schedule) as jobs:
        assert not any(job.lost for job in jobs)


@contextmanager
def _staged(schedule: list[Accident]) -> Iterator[list[Job]]:
    """Let it all happen, put everything in order, and hand out the jobs as they are then."""
    with tempfile.TemporaryDirectory(prefix="stopgap-accidents-") as folder:
        stage = Stage(Path(folder), nodes=len(NODES), programs=PROGRAMS)
        try:
            jobs = [stage.submit("count") for _ in range(3)]
            stage.settle()
            for accident in schedule:
                note(f"{accident}")
                accident.happen(stage)
                _pass(stage, jobs, accident.seconds)
            _mend(stage, jobs)
            yield [stage.job(job) for job in jobs]
        finally:
            stage.close()


def _pass(stage: Stage, jobs: list[JobId], seconds: float, step: float = 1.0) -> None:
    passed = 0.0
    while passed < seconds:
        stage.clock.wait(step)
        passed += step
        stage.look()
        for job in jobs:
            living = stage.engine.living(job)
            assert len(living) <= 1, f"job {job} lives twice: {living}"
            assert stage.state(job) not in {JobState.COMPLETED, JobState.FAILED}, stage.job(job)


def _mend(stage: Stage, jobs: list[JobId]) -> None:
    """When everything is in order again every job goes on, and its log has no gap."""
    for node in NODES:
        stage.engine.mend(node)
        stage.observer.set_drained(node, drained=False)
    waited = 0.0
    while not all(_runs(stage, job) for job in jobs):
        for job in jobs:
            if stage.state(job) is JobState.HELD:
                release = Change(job=job, hold_wanted=False, fault=False, reason="released")
                stage.store.record(release, now=stage.clock.now())
        assert waited < _PATIENCE_SECONDS, [stage.job(job) for job in jobs]
        _pass(stage, jobs, 5, step=5)
        waited += 5
    before = [len(stage.counted(job)) for job in jobs]
    _pass(stage, jobs, 5)
    for job, length in zip(jobs, before, strict=True):
        log = stage.counted(job)
        assert len(log) > length
        assert list(range(len(log))) == log, stage.job(job)


def _runs(stage: Stage, job: JobId) -> bool:
    return stage.state(job) is JobState.RUNNING and len(stage.engine.living(job)) == 1
