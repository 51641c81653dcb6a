"""The canary: a program that holds much of what is hard to save, and notices any loss.

It runs on nodes with their own Python (3.6 or newer, standard library) and prints a
number and a verdict a line.  Nothing here is imported by it.
"""

import fcntl
import os
import socket
import sys
import threading
import time
import zlib

MEMORY = 8 << 20
SHARED = "/dev/shm/canary"  # noqa: S108  # a private tmpfs: its content is a part of the checkpoint
#: In the container's writable layer.
FOLDER = "/tmp"  # noqa: S108  # the container's own
PATTERN = bytes(range(256)) * 1024
#: How long a thread may wait for a core: on a busy node that takes seconds.
TURNS = 500


class Canary:
    """Everything that is held open, and what it must look like."""

    def __init__(self) -> None:
        self.memory = bytearray(os.urandom(1 << 16)) * (MEMORY >> 16)
        self.sum = zlib.crc32(self.memory)
        self.deleted = self._deleted()
        self.lock_path = FOLDER + "/lock"
        self.lock = open(self.lock_path, "w")  # noqa: PTH123, SIM115  # held for good; old Pythons
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        with open(SHARED, "wb") as file:  # noqa: PTH123  # as above
            file.write(PATTERN)
        self.client, self.server = self._pair()
        self.ticks = [0, 0, 0]
        for number in range(len(self.ticks)):
            threading.Thread(target=self._tick, args=(number,), daemon=True).start()

    @staticmethod
    def _deleted() -> int:
        path = FOLDER + "/deleted"
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        for _ in range(8):
            os.write(file, PATTERN)
        os.unlink(path)  # noqa: PTH108  # a file descriptor's path
        return file

    @staticmethod
    def _pair() -> "tuple[socket.socket, socket.socket]":
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(1)
            client = socket.create_connection(listener.getsockname())
            return client, listener.accept()[0]

    def _tick(self, number: int) -> None:
        while True:
            self.ticks[number] += 1
            time.sleep(0.01)  # noqa: TID251  # a program of its own, on another machine

    def fault(self, number: int, ticks: "list[int]") -> str:
        """Name what was lost; empty when nothing was."""
        word = b"%d\n" % number
        self.client.sendall(word)
        if self.server.recv(64) != word:
            return "the TCP connection"
        if os.pread(self.deleted, len(PATTERN), 7 * len(PATTERN)) != PATTERN:
            return "the deleted file"
        with open(SHARED, "rb") as file:  # noqa: PTH123  # as above
            if file.read() != PATTERN:
                return "the shared memory"
        if zlib.crc32(self.memory) != self.sum:
            return "the memory"
        if not self._all_tick(ticks):
            return "a thread"
        return "" if self._locked() else "the file lock"

    def _all_tick(self, before: "list[int]") -> bool:
        """Wait until every thread has gone on; turns are counted, for clocks may jump."""
        for _turn in range(TURNS):
            if all(now > before[thread] for thread, now in enumerate(self.ticks)):
                return True
            time.sleep(0.02)  # noqa: TID251  # a program of its own, on another machine
        return False

    def _locked(self) -> bool:
        with open(self.lock_path, "w") as other:  # noqa: PTH123  # as above
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return True
        return False


def main() -> None:
    """Print a line about every 50 ms, for ever."""
    canary = Canary()
    number = 0
    while True:
        before = list(canary.ticks)
        time.sleep(0.05)  # noqa: TID251  # as above
        lost = canary.fault(number, before)
        sys.stdout.write(f"{number} lost {lost}\n" if lost else f"{number} ok\n")
        sys.stdout.flush()
        number += 1


if __name__ == "__main__":
    main()
