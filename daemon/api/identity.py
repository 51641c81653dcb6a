"""Who calls: the kernel's word about the other end of a unix socket."""

import asyncio
import contextlib
import grp
import os
import pwd
import socket
import struct
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from daemon.api.ports import Caller

_UCRED = struct.Struct("=iII")  # struct ucred, unix(7)

#: Of one user at a time, so that nobody can take the door away from the others.
MAX_CONNECTIONS = 128


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end, as it was when it connected."""

    pid: int
    uid: int
    gid: int


def peer_of(sock: Any) -> Peer:
    """Ask the kernel who is at the other end."""
    return Peer(*_UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)))


class PeerProtocol(H11Protocol):
    """HTTP that carries the peer of its connection in ``request.state.peer``."""

    peer: Peer

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        self.peer = peer_of(transport.get_extra_info("socket"))
        super().connection_made(transport)
        self.app_state = {**self.app_state, "peer": self.peer}
        mine = sum(_uid(other) == self.peer.uid for other in self.connections)
        if self.peer.uid != 0 and mine > MAX_CONNECTIONS:
            transport.abort()


def _uid(connection: object) -> int | None:
    peer = getattr(connection, "peer", None)
    return peer.uid if isinstance(peer, Peer) else None


def caller_of(peer: Peer, admin_group: str) -> Caller:
    """Look the peer's account up.  Somebody without an account is a number."""
    name = str(peer.uid)
    groups: tuple[int, ...] = (peer.gid,)
    with contextlib.suppress(KeyError):
        name = pwd.getpwuid(peer.uid).pw_name
        groups = tuple(sorted(os.getgrouplist(name, peer.gid)))
    is_admin = peer.uid == 0
    with contextlib.suppress(KeyError):
        is_admin = is_admin or grp.getgrnam(admin_group).gr_gid in groups
    return Caller(
        uid=peer.uid, gid=peer.gid, pid=peer.pid, name=name, groups=groups, is_admin=is_admin
    )
