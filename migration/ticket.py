"""Keys and what is signed with them: tickets for containers, requests of the prolog hook.

One master secret lies beside the daemon's database.  The site's key and one key per
node are derived from it, so that a node whose key leaks cannot speak for another.
"""

import base64
import binascii
import hashlib
import hmac
import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from daemon.core.types import NodeName

#: The only variable of ours that a container's environment holds.
TICKET_VARIABLE = "STOPGAP_TICKET"
#: Names that begin so cannot be set by users or images.
RESERVED_PREFIX = "STOPGAP_"
_VERSION = 1


class ForgedError(Exception):
    """The text was not signed with this key, or is no ticket at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """The right to start or resume one segment, once."""

    instance: str
    node: str
    job: int
    epoch: int
    uid: int
    #: Of the container.
    name: str
    #: What to resume from; None is a start from the beginning.
    generation: int | None
    #: When the batch system last said that the node is idle; seconds since 1970.
    seen: float
    expires: float
    nonce: str
    #: Directories into which the container's bind mounts may lead.
    roots: tuple[str, ...] = ()
    #: What the job declares as its results, as it sees it.
    results: tuple[str, ...] = ()
    #: Files on the node that change without the job's doing.
    ignored: tuple[str, ...] = ()
    #: What to do about files that changed after the generation; None does not look.
    after_crash: str | None = None


class Keys:
    """All keys of an installation, derived from its master secret."""

    def __init__(self, master: bytes) -> None:
        self._master = master

    @property
    def site(self) -> bytes:
        """The key that manifests are signed with, the same on every node."""
        return _mac(self._master, b"stopgap site")

    def node(self, node: NodeName) -> bytes:
        """Return the key that the daemon shares with this node alone."""
        return _mac(self._master, b"stopgap node " + node.encode())

    def nonce(self, node: NodeName, job: int, epoch: int) -> str:
        """
        Return the segment's own nonce: the same each time it is asked for.

        So a repeated order for the same segment carries a ticket that its node has
        consumed, and cannot start the job a second time.
        """
        return _mac(self.node(node), f"nonce {job}.{epoch}".encode()).hex()[:32]

    def sign_hook(self, node: NodeName, body: bytes) -> str:
        """Sign a hook's request as the node does."""
        return _mac(self.node(node), body).hex()

    def verify_hook(self, node: NodeName, body: bytes, signature: str) -> bool:
        """Tell whether the body was signed by that node."""
        return hmac.compare_digest(self.sign_hook(node, body).encode(), signature.encode())


def master_secret(path: Path) -> bytes:
    """
    Read the master secret, or make one: 32 random bytes, as hex, for root alone.

    Raises:
        ValueError: the file is there and holds something else.
    """
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        secret = bytes.fromhex(path.read_text(encoding="ascii").strip())
        if len(secret) != 32:
            raise ValueError(f"{path} does not hold 32 bytes as hex") from None
        return secret
    secret = secrets.token_bytes(32)
    with os.fdopen(file, "w", encoding="ascii") as stream:
        stream.write(secret.hex() + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    return secret


def sign(ticket: Ticket, key: bytes) -> str:
    """Return the ticket as the text of its variable."""
    text = json.dumps({"v": _VERSION} | asdict(ticket), separators=(",", ":"))
    payload = base64.urlsafe_b64encode(text.encode()).rstrip(b"=")
    return f"{payload.decode()}.{_mac(key, payload).hex()}"


def read(text: str, key: bytes) -> Ticket:
    """
    Return the ticket of such a text.

    Raises:
        ForgedError: it was not signed with this key.
    """
    payload, _, mac = text.partition(".")
    if not hmac.compare_digest(_mac(key, payload.encode()).hex().encode(), mac.encode()):
        raise ForgedError("the ticket is not signed with this key")
    try:
        document = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        version = document.pop("v")
        lists = {name: tuple(document[name]) for name in ("roots", "results", "ignored")}
        ticket = Ticket(**(document | lists))
    except (ValueError, TypeError, KeyError, AttributeError, binascii.Error) as exc:
        raise ForgedError(f"the ticket cannot be read: {exc}") from exc
    if version != _VERSION:
        raise ForgedError(f"the ticket is of version {version}")
    return ticket


def _mac(key: bytes, content: bytes) -> bytes:
    return hmac.new(key, content, hashlib.sha256).digest()
