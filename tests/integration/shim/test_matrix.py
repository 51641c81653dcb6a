"""Everything that a job may hold moves along, several kinds of it in one job."""

import re
import shutil
import socket

import pytest

from tests.integration.shim.jobs import assert_gap_free
from tests.integration.shim.kit import EngineSaidError, ShimNode
from tests.integration.shim.programs import FILES, HEAD, MEMORY, PROCESSES, TAIL, THREADS
from tests.testbed import wait_until

pytestmark = pytest.mark.bed

PROGRAMS = {"files": FILES, "memory": MEMORY, "processes": PROCESSES, "threads": THREADS}


@pytest.mark.parametrize("name", PROGRAMS)
def test_moves(pair: tuple[ShimNode, ShimNode], job: int, name: str) -> None:
    """
    Saved while it goes on, then moved once or twice: its own checks find nothing amiss.
    """
    data = pair[0].bed.data / str(job)
    data.mkdir()
    command = ["python3", "-c", PROGRAMS[name]]
    host: dict[str, object] = {"Tmpfs": {"/scratch": ""}, "PidsLimit": 4096}
    out, generation = b"", None
    last = 2 if name == "threads" else 3
    for epoch in range(1, last + 1):
        node = pair[epoch % 2]
        more = {"generation": generation, "binds": [f"{data}:/data"], "host": host}
        container = node.run(job, epoch, command, **more)
        _wait_lines(node, container, 3)
        if epoch == 1:
            node.keep(job, 1)
            node.checkpoint(container)
            _wait_lines(node, container, 3)
            node.end(job)
        if epoch < last:
            node.checkpoint(container)
            assert 137 == node.wait(container)
            generation = node.receipt(job, epoch)["generation"]
        out += node.logs(container)
        node.remove(container)

    assert_gap_free(out)
    shutil.rmtree(data)


#: What cannot be saved, and what is said about it.
REFUSED = {
    "io_uring": ("call('syscall', 425, 8, ctypes.create_string_buffer(120))", "uses io_uring"),
    "secret memory": ("call('syscall', 447, 0)", "holds secret memory"),
    "process folder": ("kept = os.open('/proc/self', os.O_RDONLY)", "directory /proc/1 open"),
    "message queue": ("call('mq_open', b'/q', 0o102, 0o600, None)", "lookup mount=.* path=/q"),
    "outside": (
        "s = socket.socket(socket.AF_UNIX); s.connect('/data/outside')",
        "unix: Dangling connection",
    ),
    "not accepted": (
        "l = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(l.getsockname())",
        "In-flight connection",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_move_is_refused(one: ShimNode, job: int, name: str) -> None:
    """
    Before anything is lost: the reason is in the receipt, and the job goes on.
    """
    program, words = REFUSED[name]
    data = one.bed.data / str(job)
    data.mkdir()
    # As on an engine that knows no seccomp; with it the job never gets some of these.
    host: dict[str, object] = {"SecurityOpt": ["no-new-privileges", "seccomp=unconfined"]}
    command = ["python3", "-c", HEAD + program + TAIL]
    with socket.socket(socket.AF_UNIX) as outside:
        outside.bind(str(data / "outside"))
        outside.listen()
        container = one.run(job, 1, command, host=host, binds=[f"{data}:/data"])
        _wait_lines(one, container, 2)

        with pytest.raises(EngineSaidError, match="was not saved"):
            one.checkpoint(container)

        assert re.search(words, one.receipt(job, 1)["error"])
        assert [] == one.generations(job)
        _wait_lines(one, container, 2)
    shutil.rmtree(data)


def test_a_connection_is_accepted_meanwhile(one: ShimNode, other: ShimNode, job: int) -> None:
    """
    A job that is frozen between a connection and its acceptance gets a moment for it.
    """
    program = """
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
peer, last = None, time.monotonic()

@check
def accepted():
    "It accepts as soon as it notices that it stood still."
    global peer, last
    now = time.monotonic()
    if peer is None and now - last > .08: peer, _ = server.accept()
    last = now
    if peer: client.sendall(b"x"); assert peer.recv(1) == b"x"
"""
    command = ["python3", "-c", HEAD + program + TAIL]
    container = one.run(job, 1, command)
    _wait_lines(one, container, 2)
    one.checkpoint(container)
    one.wait(container)
    resumed = other.run(job, 2, command, generation=1)
    _wait_lines(other, resumed, 3)
    assert_gap_free(one.logs(container) + other.logs(resumed))


def test_what_cannot_be_saved_is_not_given(one: ShimNode, job: int) -> None:
    """
    Programs that would use it do without, as they do on a kernel that has none.
    """
    program = """
for number in (425, 323, 447):
    assert libc.syscall(number, 0, 0) == -1 and ctypes.get_errno() == 1, number
"""
    container = one.run(job, 1, ["python3", "-c", HEAD + program + TAIL])

    _wait_lines(one, container, 2)
    one.checkpoint(container)


def _wait_lines(node: ShimNode, container: str, more: int) -> None:
    """Wait until the job has said so many times that all is well, or that something is not."""
    before = node.logs(container).count(b"\n")

    def said() -> bool:
        log = node.logs(container)
        assert b"lost" not in log, log[-500:]
        assert node.state(container)["Running"], node.logs(container, "stderr")[-1500:].decode()
        return log.count(b"\n") >= before + more

    wait_until(said, 30, "the job's next words")
