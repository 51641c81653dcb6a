"""A node that lacks the image of a job gets the very same one, or the job is told why not."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from daemon.core.types import NodeName
from migration.access import Access
from migration.base import NodeUnfitError, OrderRefusedError, StartOrder
from migration.docker import EngineSaidError, name_part
from migration.engine import DockerEngine
from migration.settings import ImageSource
from tests.contract.engine_bench import Act, views_of
from tests.contract.registry import Registry, registry_of, serving
from tests.contract.test_engine_docker import IMAGE, DockerBench
from tests.contract.test_engine_streamed import Line

pytestmark = pytest.mark.bed

NAME = "only/here:1"


@pytest.fixture(scope="module")
def nodes() -> Iterator[DockerBench]:
    with DockerBench.started() as bench:
        # Both are known once they were asked.
        for node in (bench.here, bench.there):
            bench.engine.survey(node)
        yield bench


@pytest.fixture
def bench(nodes: DockerBench) -> Iterator[DockerBench]:
    """The nodes, with an image that only one of them has."""
    docker = nodes.access.of(nodes.here).docker
    made = docker.call("POST", "/containers/create", body={"Image": IMAGE}).json()["Id"]
    repo, _, tag = NAME.partition(":")
    params = {"container": made, "repo": repo, "tag": tag}
    docker.call("POST", "/commit", params=params, body={"Env": ["ONLY=here"]})
    docker.call("DELETE", f"/containers/{made}")
    yield nodes
    nodes.clean()
    for node in (nodes.here, nodes.there):
        _drop(nodes, node, NAME)


def _drop(bench: DockerBench, node: NodeName, name: str) -> None:
    try:
        where = f"/images/{name_part(name)}"
        bench.access.of(node).docker.call("DELETE", where, params={"force": 1})
    except EngineSaidError as exc:
        if exc.status != 404:
            raise


def _id(bench: DockerBench, node: NodeName, name: str = NAME) -> str:
    found = bench.access.of(node).docker.get(f"/images/{name_part(name)}/json")
    return str(found["Id"])


def _order(bench: DockerBench, name: str = NAME) -> StartOrder:
    order = bench.order(Act.FAIL, bench.there)
    return replace(order, spec=replace(order.spec, image=name))


def _with(bench: DockerBench, source: ImageSource, line: Line | None = None) -> DockerEngine:
    access = Access(
        replace(bench.access.engine, images=source), bench.access.nodes, bench.site.instance
    )
    for node in (bench.here, bench.there):
        access.of(node)
    return DockerEngine(access, bench.site, bench.keys, bench.store, bench.clock, pace=line)


def test_an_image_comes_from_another_node(bench: DockerBench) -> None:
    """It has the same id and the same name there, so the next job finds it."""
    placed = bench.engine.place(_order(bench))

    assert _id(bench, bench.here) == _id(bench, bench.there) == placed.image_digest


def test_a_pinned_image_comes_by_its_digest(bench: DockerBench) -> None:
    """Whatever the name means elsewhere by now."""
    order = replace(_order(bench), image_digest=_id(bench, bench.here))
    bench.access.of(bench.there).docker.call(
        "POST", f"/images/{name_part(IMAGE)}/tag", params={"repo": "only/here", "tag": "1"}
    )

    placed = bench.engine.place(order)

    assert order.image_digest == placed.image_digest
    assert _id(bench, bench.there, IMAGE) == _id(bench, bench.there)


def test_jobs_that_want_the_same_image_wait_for_one_stream(bench: DockerBench) -> None:
    """A large image does not come ten times at once."""
    line = Line(bench.clock, 0.0)
    engine = _with(bench, ImageSource.NODES, line)
    orders = [_order(bench) for _ in range(3)]

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(engine.place, orders))

    assert 1 == len(line.sent)
    assert [1, 1, 1] == [len(views_of(bench, order)) for order in orders]


def test_what_nobody_has_is_told(bench: DockerBench) -> None:
    """In words that say where it was looked for."""
    order = _order(bench, "not/there:1")

    with pytest.raises(OrderRefusedError, match="on n2, nor on any other node that answers"):
        bench.engine.place(order)
    with pytest.raises(NodeUnfitError, match="nor on any other node"):
        bench.engine.place(replace(order, image_digest=f"sha256:{'0' * 64}"))


def test_a_site_may_bring_its_images_itself(bench: DockerBench) -> None:
    """Then a node without it is asked for nothing."""
    with pytest.raises(OrderRefusedError, match="there is no image only/here:1 on n2:"):
        _with(bench, ImageSource.NOWHERE).place(_order(bench))


@pytest.fixture
def registry(bench: DockerBench) -> Iterator[Registry]:
    """A registry that has the image, from which one node has pulled it."""
    docker = bench.access.of(bench.here).docker
    saved = docker.call("GET", f"/images/{name_part(NAME)}/get").content
    with serving(registry_of(saved)) as registry:
        docker.call("POST", "/images/create", params={"fromImage": registry.name})
        yield registry
        for node in (bench.here, bench.there):
            _drop(bench, node, registry.name)


def test_an_image_is_pulled_by_its_digest(bench: DockerBench, registry: Registry) -> None:
    """What the registry has is not streamed from a node."""
    line = Line(bench.clock, 0.0)
    registry.fetched.clear()

    placed = _with(bench, ImageSource.REGISTRY, line).place(_order(bench, registry.name))

    assert _id(bench, bench.here, registry.name) == placed.image_digest
    assert registry.fetched
    assert [] == line.sent


def test_without_its_registry_an_image_comes_from_a_node(
    bench: DockerBench, registry: Registry
) -> None:
    """A registry that has lost it keeps nobody waiting."""
    line = Line(bench.clock, 0.0)
    registry.blobs.clear()
    registry.manifest = b"{}"

    placed = _with(bench, ImageSource.REGISTRY, line).place(_order(bench, registry.name))

    assert _id(bench, bench.here, registry.name) == placed.image_digest
    assert 1 == len(line.sent)
