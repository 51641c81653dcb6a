"""Tickets and keys: what is signed by one key is believed with that key alone."""

import stat
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.core.types import NodeName
from migration.ticket import ForgedError, Keys, Ticket, master_secret, read, sign

N1, N2 = NodeName("n1"), NodeName("n2")
KEYS = Keys(b"m" * 32)
TICKET = Ticket(
    instance="site",
    node="n1",
    job=7,
    epoch=3,
    uid=1000,
    name="stopgap-site-7-3",
    generation=None,
    seen=1764579231.25,
    expires=1764579531.25,
    nonce=KEYS.nonce(N1, 7, 3),
)


@given(generation=st.none() | st.integers(min_value=1), uid=st.integers(0, 2**32 - 2))
def test_what_was_signed_is_read(generation: int | None, uid: int) -> None:
    """Nothing of a ticket is lost on the way."""
    ticket = replace(TICKET, generation=generation, uid=uid)

    assert ticket == read(sign(ticket, KEYS.node(N1)), KEYS.node(N1))


def test_another_nodes_key_does_not_fit() -> None:
    """A ticket for one node is worth nothing on another."""
    with pytest.raises(ForgedError):
        read(sign(TICKET, KEYS.node(N1)), KEYS.node(N2))


@pytest.mark.parametrize("position", [0, 10, -1])
def test_a_changed_ticket_is_forged(position: int) -> None:
    """One character is enough."""
    text = list(sign(TICKET, KEYS.node(N1)))
    text[position] = "0" if text[position] != "0" else "1"

    with pytest.raises(ForgedError):
        read("".join(text), KEYS.node(N1))


@pytest.mark.parametrize("text", ["", ".", "a.b", "é.é"])
def test_what_is_no_ticket_is_forged(text: str) -> None:
    """Never another error."""
    with pytest.raises(ForgedError):
        read(text, KEYS.node(N1))


def test_a_segment_has_one_nonce() -> None:
    """A repeated order cannot start a job twice, another segment is another matter."""
    nonces = {
        KEYS.nonce(node, job, epoch) for node in (N1, N2) for job in (7, 8) for epoch in (3, 4)
    }

    assert 8 == len(nonces)
    assert KEYS.nonce(N1, 7, 3) == Keys(b"m" * 32).nonce(N1, 7, 3)
    assert 32 == len(KEYS.nonce(N1, 7, 3))


def test_a_hook_speaks_for_its_own_node_only() -> None:
    """A node whose key leaked cannot vacate another."""
    signature = KEYS.sign_hook(N1, b"body")

    assert KEYS.verify_hook(N1, b"body", signature)
    assert not KEYS.verify_hook(N2, b"body", signature)
    assert not KEYS.verify_hook(N1, b"bodY", signature)
    assert not KEYS.verify_hook(N1, b"body", "ü")


def test_the_master_secret_is_made_once_and_for_root_alone(tmp_path: Path) -> None:
    """The next start of the daemon speaks with the same keys."""
    path = tmp_path / "master.key"

    secret = master_secret(path)

    assert secret == master_secret(path)
    assert 32 == len(secret)
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)


def test_a_broken_master_secret_is_not_replaced(tmp_path: Path) -> None:
    """New keys would make every checkpoint worthless: an administrator must decide."""
    path = tmp_path / "master.key"
    path.write_text("abcd\n")

    with pytest.raises(ValueError, match="32 bytes"):
        master_secret(path)

    assert "abcd\n" == path.read_text()
