"""The demo's own judgement: whom to claim next, and whether two runs are the same."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.demo.catalogue import Program
from tests.demo.compare import differences
from tests.demo.driver import EndedTooSoonError, next_claims, short_of
from tests.demo.picture import JobLook, NodeLook, Picture
from tests.demo.priority import PriorityJob
from tests.demo.references import Run
from tests.demo.report import faults


def _job(number: int, *, moves: int = 0, state: str = "running", lost: float = 0) -> JobLook:
    return JobLook(
        id=number,
        name=f"job{number}",
        state=state,
        node=None,
        reason="",
        exit_code=None,
        run_seconds=0,
        lost_seconds=lost,
        evictions=moves,
        migrations=moves,
    )


def _node(name: str, *jobs: int) -> NodeLook:
    return NodeLook(name=name, words="IDLE", jobs=jobs, reason="", claims=())


def _claims(picture: Picture, *, claims: int = 0, just_moved: tuple[int, ...] = ()) -> list[str]:
    return list(
        next_claims(
            picture,
            moves=3,
            claims=claims,
            just_moved=frozenset(just_moved),
            hasty=frozenset({2}),
        )
    )


def _picture(*nodes: NodeLook, moves: int = 0, **priority: PriorityJob) -> Picture:
    jobs = tuple(_job(number, moves=moves) for node in nodes for number in node.jobs)
    return Picture(jobs=jobs, nodes=nodes, priority=tuple(priority.values()))


def test_hasty_jobs_are_moved_first_but_not_twice_in_a_row() -> None:
    """
    The job that may end soon has its moves early, with a rest in between.
    """
    picture = _picture(_node("n1", 1), _node("n2", 2), _node("n3"))

    assert ["n2"] == _claims(picture)
    assert ["n1"] == _claims(picture, just_moved=(2,))


def test_some_claims_want_two_nodes() -> None:
    """
    Jobs must also be seen to wait for a gap.
    """
    picture = _picture(_node("n1", 1), _node("n2", 2), _node("n3"))

    assert ["n2", "n1"] == _claims(picture, claims=3)


def test_nothing_is_claimed_while_something_is_under_way() -> None:
    """
    A move that has not ended, or a node that is not free again, is waited for.
    """
    full = _picture(_node("n1", 1), _node("n2", 2))
    under_way = PriorityJob(number="1", node="n3", sent=0)
    claimed = _picture(_node("n1", 1), _node("n3"), first=under_way)

    assert [] == _claims(full)
    assert [] == _claims(claimed)


def test_a_job_that_ends_before_its_moves_is_an_error() -> None:
    """
    A demo that shows less than it promises does not pass.
    """
    picture = Picture(jobs=(_job(1, moves=2, state="completed"),), nodes=(), priority=())

    with pytest.raises(EndedTooSoonError, match="job1 is completed after 2 moves"):
        short_of(picture, 3)


def _run(folder: Path, log: bytes, *, exit_code: int = 0, **files: bytes) -> Run:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return Run(log=log, folder=folder, exit_code=exit_code)


def test_the_first_difference_is_named(tmp_path: Path) -> None:
    """
    A line that is missing in a log is found, with its place.
    """
    program = Program(name="p", argv=())
    whole = _run(tmp_path / "a", b"0\n1\n2\n")
    cut = _run(tmp_path / "b", b"0\n2\n")

    (found,) = differences(program, whole, cut)

    assert found.startswith("the log differs from byte 2 (line 2) of 6, 4 found")


def test_streams_are_compared_each_by_itself(tmp_path: Path) -> None:
    """
    Docker keeps the order within stdout and within stderr, not the one between them.
    """
    program = Program(name="p", argv=(), streams=(b"out ", b"err "))
    one = _run(tmp_path / "a", b"out 0\nerr 0\nout 1\n")
    other = _run(tmp_path / "b", b"err 0\nout 0\nout 1\n")
    doubled = _run(tmp_path / "c", b"err 0\nout 0\nout 1\nerr 0\n")

    assert [] == differences(program, one, other)
    assert 1 == len(differences(program, one, doubled))


def test_files_and_exit_codes_count_too(tmp_path: Path) -> None:
    """
    What a program leaves is more than its log.
    """
    program = Program(name="p", argv=(), files=("f",))
    one = _run(tmp_path / "a", b"", f=b"same")
    other = _run(tmp_path / "b", b"", exit_code=1, f=b"sane")
    more = _run(tmp_path / "c", b"", f=b"same", g=b"")

    assert 2 == len(differences(program, one, other))
    assert ["files ['f'] expected, ['f', 'g'] found"] == differences(program, one, more)


def test_databases_are_compared_by_what_is_in_them(tmp_path: Path) -> None:
    """
    Two databases with the same rows are the same, however their pages lie.
    """
    program = Program(name="p", argv=(), databases=("d",))
    runs = []
    for name, rows in (("a", (1, 2)), ("b", (1, 2)), ("c", (1, 3))):
        run = _run(tmp_path / name, b"")
        with closing(sqlite3.connect(run.folder / "d")) as database, database:
            database.execute("CREATE TABLE t (n INTEGER)")
            database.executemany("INSERT INTO t VALUES (?)", [(row,) for row in rows])
        runs.append(run)

    assert [] == differences(program, runs[0], runs[1])
    assert 1 == len(differences(program, runs[0], runs[2]))


def test_every_broken_promise_is_a_fault() -> None:
    """
    Work that was lost, a job that was not moved, company on a node, something left behind.
    """
    jobs = (_job(1, moves=3, state="completed", lost=1.5), _job(2, moves=1, state="failed"))
    met = PriorityJob(number="7", node="n1", sent=0, began=1, ended=2, found=3)

    found = "; ".join(faults(jobs, (met,), ["cgroup 1.1"], moves=3))

    assert "job1 lost 1.5 s of work" in found
    assert "job2 is failed" in found
    assert "job2 was moved 1 times, not 3" in found
    assert "priority job 7 on n1 met 3 processes of jobs" in found
    assert "left behind: cgroup 1.1" in found
