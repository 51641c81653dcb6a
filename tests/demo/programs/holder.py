"""Holds on to what a new process would not have: holder.py STEPS SECONDS FILE.

A deleted file, a lock, both ends of a TCP connection, a pipe with something in it.
"""

import fcntl
import os
import socket
import sys
import tempfile
import time
from pathlib import Path


def main(steps: int, seconds: float, path: Path) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    near = socket.create_connection(server.getsockname())
    far, _ = server.accept()
    outlet, inlet = os.pipe()
    os.write(inlet, b"left in the pipe")
    with path.open("w") as locked, tempfile.TemporaryFile() as gone:
        fcntl.flock(locked, fcntl.LOCK_EX)
        for step in range(steps):
            gone.write(step.to_bytes(4, "big"))
            gone.flush()
            near.sendall(b"question %d" % step)
            question = far.recv(64)
            far.sendall(b"answer to " + question)
            answer = near.recv(64).decode()
            line = f"{step}: {answer}, {os.fstat(gone.fileno()).st_size} bytes in a deleted file"
            print(line, flush=True)
            print(line, file=locked, flush=True)
            expect_locked(path)
            time.sleep(seconds)
        gone.seek(0)
        whole = b"".join(step.to_bytes(4, "big") for step in range(steps)) == gone.read()
    print(f"the deleted file is whole: {whole}; {os.read(outlet, 64).decode()}", flush=True)


def expect_locked(path: Path) -> None:
    with path.open() as other:
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
    raise SystemExit("the lock is lost")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]))
