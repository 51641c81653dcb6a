"""The one door to the network: what a node may say, and how."""

import hashlib
import hmac
import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from daemon.api import hooks
from daemon.api.ports import Refused
from daemon.api.server import HookServer, ListenError
from tests.unit.counter import Counter
from tests.unit.doors import ask

KEY = b"k" * 32
CALL = {"node": "n1", "time": 1.5, "nonce": "0123456789abcdef", "job": "7", "seconds": 60}


class Signed(Counter):
    """A desk that knows one node's key."""

    def hook(self, node: str, body: bytes, signature: str) -> None:
        if not hmac.compare_digest(sign(body), signature):
            raise Refused("the call is not signed with this node's key", "set it up", 401)
        super().hook(node, body, "a")


def sign(body: bytes) -> str:
    return hmac.new(KEY, body, hashlib.sha256).hexdigest()


@pytest.fixture(scope="module")
def listener() -> Iterator[tuple[HookServer, Signed]]:
    """A listener on a port that the kernel chose."""
    desk = Signed()
    server = HookServer("127.0.0.1", 0, desk)
    server.start()
    yield server, desk
    server.stop()


@pytest.fixture
def desk(listener: tuple[HookServer, Signed]) -> Signed:
    listener[1].reset()
    return listener[1]


def call(server: HookServer, body: bytes, signature: str | None, path: str = "prolog") -> Any:
    headers = {} if signature is None else {"X-Stopgap-Signature": signature}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    return ask(connection, "POST", f"/v1/hooks/{path}", body, headers)


def test_a_signed_call_is_accepted(listener: tuple[HookServer, Signed], desk: Signed) -> None:
    """The desk gets the very bytes that were signed."""
    body = json.dumps(CALL, indent=3).encode()

    assert (202, {"accepted": True}) == call(listener[0], body, sign(body))
    assert [("n1", body, "a")] == desk.hooks


@pytest.mark.parametrize(
    ("body", "signature", "status"),
    [
        (json.dumps(CALL).encode(), None, 401),
        (json.dumps(CALL).encode(), "", 401),
        (json.dumps(CALL).encode(), "A" * 64, 401),
        (json.dumps(CALL).encode(), "0" * 64, 401),
        (json.dumps(CALL).encode(), sign(b"something else"), 401),
        (b"", sign(b""), 400),
        (b"[]", sign(b"[]"), 400),
        (b'{"node": "../n1"}', sign(b'{"node": "../n1"}'), 400),
        (b" " * 5000, sign(b" " * 5000), 413),
    ],
    ids=[
        "no signature",
        "empty signature",
        "no hex",
        "zeros",
        "another body's",
        "no body",
        "a list",
        "no node",
        "too long",
    ],
)
def test_anything_else_is_refused(
    listener: tuple[HookServer, Signed], desk: Signed, *, body: bytes, signature: str, status: int
) -> None:
    """Not signed is 401, not a call is 400, too long is not read to its end."""
    found, document = call(listener[0], body, signature)

    assert (status, {"error", "hint"}) == (found, set(document))
    assert [] == desk.hooks


@pytest.mark.parametrize("path", ["epilog", "../jobs"])
def test_there_is_one_call_only(listener: tuple[HookServer, Signed], path: str) -> None:
    """The API is not on the network."""
    assert 404 == call(listener[0], b"{}", "0" * 64, path)[0]


def test_a_caller_who_says_nothing_is_hung_up_on(
    listener: tuple[HookServer, Signed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections are few and prologs are in a hurry."""
    monkeypatch.setattr(hooks, "_CONNECTION_SECONDS", 0.05)
    with socket.create_connection(("127.0.0.1", listener[0].port), timeout=10) as sock:
        sock.sendall(b"POST /v1/hooks/prolog HTTP/1.1\r\n")

        try:
            answer = sock.recv(1)
        except ConnectionResetError:
            answer = b""
        assert b"" == answer


def test_an_address_in_use_is_told(listener: tuple[HookServer, Signed]) -> None:
    """With the key to change."""
    with pytest.raises(ListenError, match=r"change daemon\.hook_listen"):
        HookServer("127.0.0.1", listener[0].port, Signed()).start()
