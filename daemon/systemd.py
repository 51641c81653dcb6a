"""How the service manager is told: sd_notify(3), without a library."""

import contextlib
import os
import socket


def notify(*lines: str) -> None:
    """Send assignments such as READY=1 to systemd; without systemd do nothing."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    message = "\n".join(line.replace("\n", " ") for line in lines)
    # A manager that is being replaced must not take its service along; when it really
    # hears nothing any more, its watchdog says so.
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock,
    ):
        sock.sendto(message.encode(), address)
