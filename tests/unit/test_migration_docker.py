"""The client: every call ends, and says whether the engine spoke or was silent."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from migration.base import EngineUnreachableError, NodeUnfitError
from migration.docker import Docker, EngineSaidError, demultiplexed
from migration.output import followed, printed
from migration.settings import EngineSettings
from tests.unit.engine_stub import StubEngine, serving


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[StubEngine]:
    with serving(tmp_path / "docker.sock") as engine:
        yield engine


@pytest.fixture
def docker(stub: StubEngine) -> Iterator[Docker]:
    client = Docker(stub.address, EngineSettings(address=stub.address, timeout_seconds=0.3))
    yield client
    client.forget()


def test_the_version_is_agreed_upon_once(stub: StubEngine, docker: Docker) -> None:
    """The newest that both know."""
    stub.routes["GET", "/containers/json"] = lambda _: (200, [])

    assert [] == docker.get("/containers/json", all=1)
    assert [] == docker.get("/containers/json", all=1)

    assert ["GET /version", *["GET /v1.48/containers/json?all=1"] * 2] == stub.asked


@pytest.mark.parametrize(
    ("newest", "oldest", "chosen"), [("1.41", "1.12", "1.41"), ("1.99", "1.44", "1.51")]
)
def test_old_and_new_engines_are_understood(
    stub: StubEngine, docker: Docker, newest: str, oldest: str, chosen: str
) -> None:
    """From Docker 20.10 to those that have not been seen."""
    stub.routes["GET", "/version"] = lambda _: (
        200,
        {"ApiVersion": newest, "MinAPIVersion": oldest},
    )
    stub.routes["GET", "/info"] = lambda _: (200, {})

    docker.facts()

    assert f"GET /v{chosen}/info" == stub.asked[-1]


@pytest.mark.parametrize("said", [{"ApiVersion": "1.40"}, {"ApiVersion": "?"}, {}])
def test_what_is_too_old_is_named(stub: StubEngine, docker: Docker, said: dict[str, str]) -> None:
    """An engine without what stopgap needs, or of another kind."""
    stub.routes["GET", "/version"] = lambda _: (200, said)

    with pytest.raises(NodeUnfitError, match="API"):
        docker.get("/info")


def test_an_error_keeps_the_engines_words(stub: StubEngine, docker: Docker) -> None:
    """Text that is no JSON too."""
    stub.routes["GET", "/a"] = lambda _: (409, {"message": "it is so\n"})
    stub.routes["GET", "/b"] = lambda _: (500, b"<html>")

    with pytest.raises(EngineSaidError, match=r"^it is so$") as first:
        docker.get("/a")
    with pytest.raises(EngineSaidError, match="<html>"):
        docker.get("/b")

    assert 409 == first.value.status


def test_silence_is_unreachable(stub: StubEngine, docker: Docker) -> None:
    """Accepting is not answering, not for the first question either."""
    stub.routes["GET", "/a"] = stub.hang
    with pytest.raises(EngineUnreachableError, match="/a"):
        docker.get("/a")

    stub.routes["GET", "/version"] = stub.hang
    with pytest.raises(EngineUnreachableError):
        docker.get("/b")


def test_a_dropped_connection_is_unreachable(stub: StubEngine, docker: Docker) -> None:
    """The call may have happened."""
    stub.routes["POST", "/a"] = stub.drop

    with pytest.raises(EngineUnreachableError):
        docker.call("POST", "/a", body={"x": 1})


@pytest.mark.parametrize("scheme", ["unix:///nowhere.sock", "tcp://127.0.0.1:1", "ssh://"])
def test_nobody_there_is_unreachable(scheme: str) -> None:
    """By whatever way."""
    client = Docker(scheme, EngineSettings(address=scheme, connect_seconds=1))

    with pytest.raises(EngineUnreachableError):
        client.get("/info")
    client.forget()


def test_facts_are_asked_again_after_a_silence(stub: StubEngine, docker: Docker) -> None:
    """The engine may be another one by then."""
    stub.routes["GET", "/info"] = lambda _: (
        200,
        {"ServerVersion": "1", "Warnings": ["WARNING: No blkio weight support"]},
    )
    first = docker.facts()
    stub.routes["GET", "/info"] = lambda _: (200, {"ServerVersion": "2", "Warnings": None})

    assert first == docker.facts()
    docker.forget()

    assert ("1", False) == (first.version, first.blkio_weight)
    assert ("2", True) == (docker.facts().version, docker.facts().blkio_weight)


def test_output_is_taken_out_of_its_frames(stub: StubEngine, docker: Docker) -> None:
    """Both streams in the order in which they came; half a frame is kept."""
    frames = _frame(1, b"out\n") + _frame(2, b"err\n") + _frame(1, b"half")[:-1]
    stub.routes["GET", "/x"] = lambda _: (200, frames)

    with docker.stream("/x", silence_seconds=None) as answer:
        assert b"out\nerr\nhal" == b"".join(demultiplexed(answer))


def test_a_removed_container_has_printed_nothing(docker: Docker) -> None:
    """No error: the caller wanted what there is."""
    assert [] == list(printed(docker, "gone"))
    assert [] == list(followed(docker, "gone"))


def test_following_goes_on_where_it_was_cut_off(stub: StubEngine, docker: Docker) -> None:
    """No byte twice, none lost."""
    states = iter([True, False])
    logs = iter([_frame(1, b"one "), _frame(1, b"one ") + _frame(1, b"two ")])
    last = _frame(1, b"one ") + _frame(1, b"two three")
    stub.routes["GET", "/containers/c/logs"] = lambda _: (200, next(logs, last))
    stub.routes["GET", "/containers/c/json"] = lambda _: (200, {"State": {"Running": next(states)}})

    assert b"one two three" == b"".join(followed(docker, "c"))


def _frame(stream: int, content: bytes) -> bytes:
    return bytes((stream, 0, 0, 0)) + len(content).to_bytes(4, "big") + content
