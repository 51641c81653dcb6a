"""Programs that know nothing of checkpoints, and what they must have written at their end."""

from pathlib import Path

from tests.integration.service_kit import Service
from tests.testbed import wait_until

#: Counts on stdout, on stderr and in two files until it finds ``/data/stop``, and ends as a
#: failure as soon as anything that it holds (a deleted file, a file under another name, a lock,
#: threads, a connection) is not as it was.
STEADY = r"""
import fcntl, os, socket, sys, threading, time

gone = open("/gone", "w+"); gone.write("kept" * 1000); gone.flush(); os.unlink("/gone")
moved = open("/first", "w+"); moved.write("linked"); moved.flush()
os.link("/first", "/second"); os.unlink("/first")
lock = open("/lock", "w"); fcntl.flock(lock, fcntl.LOCK_EX)
server = socket.socket(); server.bind(("127.0.0.1", 0)); server.listen(1)
client = socket.create_connection(server.getsockname()); peer, _ = server.accept()
ticks = [0, 0, 0]

def work(mine):
    while True:
        ticks[mine] += 1
        time.sleep(0.01)

for mine in range(3):
    threading.Thread(target=work, args=(mine,), daemon=True).start()
shared, layer = open("/data/count", "a"), open("/count", "a")
count, before = 0, list(ticks)
while not os.path.exists("/data/stop"):
    client.sendall(b"ping"); assert peer.recv(4) == b"ping"
    peer.sendall(b"pong"); assert client.recv(4) == b"pong"
    gone.seek(0); assert gone.read() == "kept" * 1000
    moved.seek(0); assert moved.read() == "linked"
    assert os.path.samestat(os.fstat(moved.fileno()), os.stat("/second"))
    print("out", count, flush=True)
    print("err", count, file=sys.stderr, flush=True)
    print(count, file=shared, flush=True)
    print(count, file=layer, flush=True)
    count += 1
    if count % 20 == 0:
        assert open("/count").read().split() == [str(n) for n in range(count)]
        assert all(now > then for now, then in zip(ticks, before)), (ticks, before)
        before = list(ticks)
        try:
            fcntl.flock(open("/lock"), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            raise SystemExit("the lock was lost")
    time.sleep(0.02)
print("out end", flush=True)
"""

#: The same with something to carry along in its writable layer.
_LOAD = """
import os
with open("/ballast", "wb") as ballast:
    for _ in range({mib}):
        ballast.write(os.urandom(1 << 20))
"""
LADEN = _LOAD.format(mib=64) + STEADY

#: The same with so much of it that a checkpoint takes a while.
HEAVY = _LOAD.format(mib=400) + STEADY

#: Cannot be saved: it has a child that it traces, and CRIU must trace that itself.
TRACER = """
import ctypes, os, time
if os.fork() == 0:
    ctypes.CDLL(None).ptrace(0, 0, 0, 0)
    time.sleep(10000)
count = 0
while not os.path.exists("/data/stop"):
    print("out", count, flush=True)
    print(count, file=open("/data/count", "a"), flush=True)
    count += 1
    time.sleep(0.02)
"""


class Steady:
    """One job that counts until it is told to stop."""

    def __init__(self, service: Service, name: str, program: str = STEADY) -> None:
        self.service = service
        self.folder = service.bed.data / name
        self.folder.mkdir()
        mount = ("--name", name, "--mount", f"{self.folder}:/data")
        self.job = service.submit("python3", "-c", program, options=mount)

    def counted(self) -> list[int]:
        """Return what it has written into its file on the shared directory."""
        path = self.folder / "count"
        return [int(word) for word in path.read_text().split()] if path.exists() else []

    def wait_progress(self, more: int = 5, seconds: float = 90) -> None:
        """Wait until it has counted further than it has now."""
        path = self.folder / "count"

        def size() -> int:
            return path.stat().st_size if path.exists() else 0

        before = size()
        wait_until(lambda: size() >= before + 2 * more, seconds, f"progress of job {self.job}")

    def stop(self) -> None:
        """Have it come to its end."""
        (self.folder / "stop").touch()

    def finish(self, seconds: float = 90) -> None:
        """Have it come to its end and check that it noticed nothing."""
        self.stop()
        self.service.wait_state(self.job, "completed", seconds=seconds)
        assert_continuous(self.service.log(self.job))


def assert_continuous(log: bytes) -> None:
    """Every number once on each stream, in order, from the first to the end."""
    lines = log.decode().splitlines()
    out = [line.removeprefix("out ") for line in lines if line.startswith("out ")]
    err = [line.removeprefix("err ") for line in lines if line.startswith("err ")]
    assert len(lines) == len(out) + len(err), [
        line for line in lines if not line.startswith(("out ", "err "))
    ]
    assert [str(n) for n in range(len(err))] == err
    assert [*err, "end"] == out


def read_text(path: Path) -> str:
    """Return a file's content; nothing where there is none."""
    try:
        return path.read_text()
    except OSError:
        return ""
