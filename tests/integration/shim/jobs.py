"""Programs that know nothing of checkpoints, and how to tell that they noticed nothing."""

import subprocess
from pathlib import Path

from tests.integration.shim.kit import FREEZER, ShimNode
from tests.testbed import wait_until
from tests.testbed.waiting import TookTooLongError

SLEEP = ["sleep", "1000"]

COUNTING = "import time\nfor n in range(10**9): print(n, flush=True); time.sleep(.01)"
#: Counts on stdout.
COUNT = ["python3", "-c", COUNTING]
#: The same, with memory that takes a moment to write.
LARGE = ["python3", "-c", "import os\nkeep = os.urandom(192 << 20)\n" + COUNTING]

#: Counts on stdout, on stderr and in two files, and ends as soon as anything that it holds
#: (a deleted file, a file under another name, a lock, threads, a connection) is not as it was.
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
        time.sleep(0.002)

for mine in range(3):
    threading.Thread(target=work, args=(mine,), daemon=True).start()
shared, layer = open("/data/count", "a"), open("/count", "a")
count, before = 0, list(ticks)
while True:
    client.sendall(b"ping"); assert peer.recv(4) == b"ping"
    peer.sendall(b"pong"); assert client.recv(4) == b"pong"
    gone.seek(0); assert gone.read() == "kept" * 1000
    moved.seek(0); assert moved.read() == "linked"
    assert os.path.samestat(os.fstat(moved.fileno()), os.stat("/second"))
    for sink in (sys.stdout, sys.stderr, shared, layer):
        print(count, file=sink, flush=True)
    if count % 20 == 19:
        assert open("/count").read().split() == [str(n) for n in range(count + 1)]
        assert all(now > then for now, then in zip(ticks, before)), (ticks, before)
        before = list(ticks)
        try:
            fcntl.flock(open("/lock"), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            raise SystemExit("the lock was lost")
    count += 1
    time.sleep(0.005)
"""


def numbers(text: bytes) -> list[int]:
    """Return what a job has counted."""
    return [int(word) for word in text.split()]


def assert_gap_free(text: bytes) -> None:
    """Every number once, in order, from the first."""
    found = numbers(text)
    assert list(range(len(found))) == found


def wait_progress(node: ShimNode, container: str, more: int = 10) -> None:
    """
    Wait until a job has counted further.

    Raises:
        TookTooLongError: with what its tasks are waiting for.
    """
    before = len(node.logs(container).splitlines())
    try:
        wait_until(lambda: len(node.logs(container).splitlines()) >= before + more, 20, "progress")
    except TookTooLongError as error:
        raise TookTooLongError(f"{error}: {before=} {_described(node, container)}") from error


def _described(node: ShimNode, container: str) -> str:
    found = [str(node.state(container)), node.logs(container, "stderr")[-300:].decode()]
    for place in FREEZER.glob(f"stopgap/{node.instance}/{node.name}/*/{container}"):
        found.append((place / "freezer.state").read_text())
        for pid in (place / "cgroup.procs").read_text().split():
            for task in Path(f"/proc/{pid}/task").iterdir():
                state = (task / "stat").read_text().split()[2]
                found.append(f"{task.name} {state} {(task / 'wchan').read_text()}")
            argv = ["nsenter", f"--net=/proc/{pid}/ns/net", "ss", "-tnoei"]
            found.append(subprocess.run(argv, capture_output=True, text=True, check=False).stdout)
    return "\n".join(found)


def saved(
    node: ShimNode, job: int, command: list[str] = COUNT, logs: list[bytes] | None = None
) -> Path:
    """Checkpoint a job once, append its log to ``logs``, and return the generation's folder."""
    container = node.run(job, 1, command)
    wait_progress(node, container)
    node.checkpoint(container)
    node.wait(container)
    if logs is not None:
        logs.append(node.logs(container))
    node.remove(container)
    return node.checkpoints / str(job) / "1"
