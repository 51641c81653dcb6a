"""A checkpoint whose answer is lost, late or wrong: the receipt decides."""

import fcntl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from daemon.clock import SystemClock
from daemon.core.types import Checkpoint, CheckpointKind, Epoch, JobId, NodeName, SegmentRef
from migration.base import EngineUnreachableError, Kept, NotSavedError
from migration.docker import Docker
from migration.saving import Committed, Saver
from migration.settings import EngineSettings
from tests.contract.clock import ManualClock
from tests.unit.engine_stub import Answer, DropError, StubEngine, serving
from tests.unit.generations import store_in, write_generation, write_receipt

REF = SegmentRef(job=JobId(7), epoch=Epoch(3), node=NodeName("n1"))
LOOK = ("GET", "/containers/c/json")
CALL = ("POST", "/containers/c/checkpoints")
OK = {"ok": True, "generation": 1, "frozen": 100.0, "empty": 100.5}


class Trial:
    """One engine that answers as told, and the store beside it."""

    def __init__(self, stub: StubEngine, root: Path) -> None:
        self.stub = stub
        self.root = root
        self.store = store_in(root)
        self.docker = Docker(stub.address, EngineSettings(address=stub.address))
        self._saver = Saver(self.store, SystemClock())

        stub.routes[LOOK] = lambda _: (200, {"State": {"Running": True, "Paused": False}})

    def checkpoint(self, *, seconds: float = 10.0) -> Committed:
        return self._saver.checkpoint(self.docker, "c", REF, seconds)

    def save(self) -> Kept:
        return self._saver.save(self.docker, "c", REF, CheckpointKind.PERIODIC, 10.0)

    @property
    def keep(self) -> Path:
        return self.root / "7" / "keep"

    def settled(self) -> Checkpoint | None:
        return self._saver.settled(REF)

    def commit(self) -> None:
        write_generation(self.root, 7, 1, epoch=3)
        write_receipt(self.root, 7, 3, **OK)


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    with serving(tmp_path / "docker.sock") as stub:
        trial = Trial(stub, tmp_path / "checkpoints")
        yield trial
        trial.docker.forget()


def test_success_is_what_the_receipt_says(trial: Trial) -> None:
    """With the times counted back from the answer."""

    def answer(_: object) -> Answer:
        trial.commit()
        return 201, b""

    trial.stub.routes[CALL] = answer

    done = trial.checkpoint()

    assert done.empty
    assert 1 == done.saved.checkpoint.generation
    assert 0.0 == done.saved.freeze_seconds


def test_a_success_is_not_repeated(trial: Trial) -> None:
    """The engine is not asked a second time."""
    trial.commit()

    assert 1 == trial.checkpoint().saved.checkpoint.generation
    assert [] == trial.stub.asked


def test_an_old_failure_is_not_taken_for_an_answer(trial: Trial) -> None:
    """Each try has its own receipt."""
    write_receipt(trial.root, 7, 3, ok=False, error="the last time")
    trial.stub.routes[CALL] = lambda _: (201, b"")

    with pytest.raises(EngineUnreachableError, match="no receipt"):
        trial.checkpoint()


def test_a_failure_has_the_shims_words(trial: Trial) -> None:
    """And says in which state the job was left."""

    def answer(_: object) -> Answer:
        write_receipt(trial.root, 7, 3, ok=False, error="disk full", found_frozen=True)
        return 500, {"message": "OCI runtime checkpoint failed"}

    trial.stub.routes[CALL] = answer

    with pytest.raises(NotSavedError, match=r"^disk full$") as caught:
        trial.checkpoint()

    assert caught.value.frozen


def test_an_engines_error_after_a_commit_is_a_success(trial: Trial) -> None:
    """It may complain about what it finds when the job is gone."""

    def answer(_: object) -> Answer:
        trial.commit()
        return 500, {"message": "no such process"}

    trial.stub.routes[CALL] = answer

    assert trial.checkpoint().empty


def test_what_the_shim_never_saw_was_not_saved(trial: Trial) -> None:
    """The engine's words are all there is."""
    trial.stub.routes[LOOK] = lambda _: (200, {"State": {"Running": True, "Paused": True}})
    trial.stub.routes[CALL] = lambda _: (400, {"message": "checkpoint is not supported"})

    with pytest.raises(NotSavedError, match="not supported") as caught:
        trial.checkpoint()

    assert caught.value.frozen


@pytest.mark.parametrize("running", [True, False])
def test_what_has_ended_is_not_saved(trial: Trial, *, running: bool) -> None:
    """The engine is not asked to."""
    if running:
        del trial.stub.routes[LOOK]
    else:
        trial.stub.routes[LOOK] = lambda _: (200, {"State": {"Running": False}})

    with pytest.raises(NotSavedError) as caught:
        trial.checkpoint()

    assert not caught.value.frozen
    assert not [asked for asked in trial.stub.asked if "POST" in asked]


def test_a_lost_answer_is_found_in_the_receipt(trial: Trial) -> None:
    """The engine died, the shim worked on."""
    trial.store.prepare(REF)
    lock = (trial.root / "7" / "lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    dropped = threading.Event()

    def finish() -> None:
        dropped.wait(5)
        trial.commit()
        lock.close()

    def answer(_: object) -> Answer:
        dropped.set()
        raise DropError

    trial.stub.routes[CALL] = answer
    shim = threading.Thread(target=finish)
    shim.start()

    done = trial.checkpoint()
    shim.join()

    assert done.empty


def test_a_lost_answer_without_a_shim_is_unknown(trial: Trial) -> None:
    """Nobody works on the job and nothing was written: ask again later."""
    trial.stub.routes[CALL] = trial.stub.drop

    with pytest.raises(EngineUnreachableError):
        trial.checkpoint()


def test_a_deadline_cancels_the_shim(trial: Trial) -> None:
    """It is told to stop, and its receipt is awaited."""
    trial.store.prepare(REF)
    lock = (trial.root / "7" / "lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)

    def stop_when_told() -> None:
        cancel = trial.root / "7" / "cancel"
        while not trial.stub.over.wait(0.01):
            if cancel.exists():
                write_receipt(trial.root, 7, 3, ok=False, error="cancelled")
                break
        lock.close()

    trial.stub.routes[CALL] = trial.stub.hang
    shim = threading.Thread(target=stop_when_told)
    shim.start()

    with pytest.raises(NotSavedError, match="cancelled"):
        trial.checkpoint(seconds=0.2)
    shim.join()


def test_survivors_are_reported(trial: Trial) -> None:
    """Committed, but the cgroup was not empty: somebody must look."""

    def answer(_: object) -> Answer:
        write_generation(trial.root, 7, 1, epoch=3)
        write_receipt(trial.root, 7, 3, **(OK | {"empty": None}))
        return 201, b""

    trial.stub.routes[CALL] = answer

    assert not trial.checkpoint().empty


def test_whoever_is_still_saving_is_waited_for(trial: Trial) -> None:
    """A shim that lost its engine commits a moment later, and that counts."""
    folder = trial.store.folder(REF.job)
    trial.store.prepare(REF)
    begun, ends = threading.Event(), threading.Event()

    def shim() -> None:
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            begun.set()
            assert ends.wait(10)
            trial.commit()

    with ThreadPoolExecutor(2) as pool:
        saving = pool.submit(shim)
        assert begun.wait(10)
        asked = pool.submit(trial.settled)
        assert not asked.done()
        ends.set()
        found = asked.result(10)
        saving.result()

    assert found is not None
    assert 1 == found.generation


def test_a_shim_without_an_end_leaves_it_open(trial: Trial) -> None:
    """Nobody kills a job, or starts it again, while it may still be saved."""
    trial.store.prepare(REF)
    with (trial.store.folder(REF.job) / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        with pytest.raises(EngineUnreachableError, match="still being saved on n1"):
            Saver(trial.store, ManualClock()).settled(REF)


KEPT = {"ok": True, "generation": 1, "frozen": 100.0, "committed": 100.5, "kind": "periodic"}


def test_a_job_is_kept_until_its_end_is_wanted(trial: Trial) -> None:
    """The mark is there before the engine is asked, and stays; an eviction takes it away."""
    marks = []

    def answer(_: object) -> Answer:
        marks.append(trial.keep.read_text() if trial.keep.exists() else "")
        kind = "periodic" if marks[-1] else "evict"
        write_generation(trial.root, 7, len(marks), epoch=3, kind=kind)
        write_receipt(trial.root, 7, 3, **KEPT | {"generation": len(marks), "kind": kind})
        return 201, b""

    trial.stub.routes[CALL] = answer

    kept = trial.save()
    assert trial.settled() is None
    trial.checkpoint()

    assert (1, CheckpointKind.PERIODIC, 0.5) == (
        kept.checkpoint.generation,
        kept.checkpoint.kind,
        kept.freeze_seconds,
    )
    assert ["3 periodic\n", ""] == marks


def test_a_kept_generation_without_a_receipt_counts(trial: Trial) -> None:
    """The shim was killed before it could say so; an older one is not taken for it."""
    write_generation(trial.root, 7, 1, epoch=3, kind="periodic")

    def answer(_: object) -> Answer:
        write_generation(trial.root, 7, 2, epoch=3, kind="periodic")
        return 500, {"message": "signal: killed"}

    trial.stub.routes[CALL] = answer
    assert 2 == trial.save().checkpoint.generation

    trial.stub.routes[CALL] = lambda _: (500, {"message": "signal: killed"})
    with pytest.raises(NotSavedError, match="killed"):
        trial.save()


def test_a_late_save_is_not_taken_for_an_eviction(trial: Trial) -> None:
    """Its receipt says what it was, and the job lives."""

    def answer(_: object) -> Answer:
        write_generation(trial.root, 7, 1, epoch=3, kind="periodic")
        write_receipt(trial.root, 7, 3, **KEPT)
        return 201, b""

    trial.stub.routes[CALL] = answer

    with pytest.raises(EngineUnreachableError, match="as periodic"):
        trial.checkpoint()
