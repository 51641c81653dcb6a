"""Two calls about one segment at the same time, on real engines: the later wish counts."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from daemon.core.types import Generation
from migration.base import EngineUnreachableError, StartOrder
from tests.contract.engine_bench import Act, Bench, census_of, lines, next_order, printed_by
from tests.contract.test_engine_docker import COMMANDS, DockerBench

pytestmark = pytest.mark.bed


@pytest.fixture(scope="module")
def nodes() -> Iterator[DockerBench]:
    with DockerBench.started() as bench:
        yield bench


@pytest.fixture
def bench(nodes: DockerBench) -> Iterator[DockerBench]:
    yield nodes
    nodes.clean()


@pytest.fixture
def order(bench: DockerBench) -> StartOrder:
    """A job that runs, and takes a moment to be saved."""
    order = bench.order(Act.COUNT, bench.here)
    count = COMMANDS[Act.COUNT][-1]
    slow = ("sh", "-c", f"head -c 50000000 /dev/urandom > /dev/shm/x; {count}")
    order = replace(order, spec=replace(order.spec, command=slow, memory_mib=128))
    bench.engine.place(order)
    bench.await_(lambda: printed_by(bench, order) > 0)
    return order


def _await_dump(bench: DockerBench, order: StartOrder) -> None:
    images = bench.folder(order.ref.job, order.ref.node) / "1" / "images"
    bench.await_(lambda: any(Path(images).glob("pages-*")))


def test_frozen_while_it_is_saved_it_stays_frozen(bench: DockerBench, order: StartOrder) -> None:
    """Whoever freezes a node must not be told that a job is frozen which then goes on."""
    with ThreadPoolExecutor(1) as pool:
        saving = pool.submit(bench.engine.save, order.ref, deadline_seconds=60)
        _await_dump(bench, order)
        bench.engine.freeze(order.ref)
        assert [True] == [s.frozen for s in census_of(bench, order)]
        saving.result()

    assert [True] == [s.frozen for s in census_of(bench, order)]
    bench.engine.thaw(order.ref)
    before = printed_by(bench, order)
    bench.await_(lambda: printed_by(bench, order) > before)


def test_evicted_while_it_is_saved_it_is_gone(bench: DockerBench, order: StartOrder) -> None:
    """One dump does for both; the save tells nothing that is not so."""
    with ThreadPoolExecutor(1) as pool:
        saving = pool.submit(bench.engine.save, order.ref, deadline_seconds=60)
        _await_dump(bench, order)
        saved = bench.engine.checkpoint(order.ref, deadline_seconds=60)
        with pytest.raises(EngineUnreachableError):
            saving.result()

    assert saved.checkpoint == bench.engine.settled(order.ref)
    assert [] == [s for s in census_of(bench, order) if s.processes]
    assert _goes_on(bench, order, saved.checkpoint.generation)


def _goes_on(bench: Bench, order: StartOrder, generation: Generation) -> bool:
    later = next_order(order, bench.there, _image(bench, order), generation)
    bench.engine.place(later)
    bench.await_(lambda: printed_by(bench, later) > 2)
    bench.engine.kill(later.ref)
    log = b"".join(b"".join(bench.engine.logs(o.ref)) for o in (order, later))
    return lines(0, log.count(b"\n")) == log


def _image(bench: Bench, order: StartOrder) -> str:
    return bench.engine.survey(order.ref.node)[0].image
