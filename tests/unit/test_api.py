"""The API over a real socket: who calls, what comes back, what is refused."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemon.api.client import Client, ClientRefusedError, DaemonUnreachableError
from daemon.api.identity import Peer, caller_of
from daemon.api.server import ApiServer, ListenError
from tests.unit.counter import Counter
from tests.unit.doors import UnixConnection, ask, my_group, opened, until

JOB: dict[str, Any] = {"image": "stopgap/busybox:1", "command": ["sleep", "1"]}


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Path, Counter]]:
    """One door for the whole file."""
    desk = Counter()
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder) / "api.sock", desk) as path:
        yield path, desk


@pytest.fixture
def desk(shared: tuple[Path, Counter]) -> Counter:
    """What is behind the door, as good as new for each test."""
    shared[1].reset()
    return shared[1]


@pytest.fixture
def door(shared: tuple[Path, Counter], desk: Counter) -> Path:  # noqa: ARG001  it is made new first
    return shared[0]


@pytest.fixture
def client(door: Path) -> Client:
    return Client(door)


def test_a_job_is_submitted_and_found(client: Client, desk: Counter) -> None:
    """What comes back is what was asked for, with what was left out filled in."""
    made = client.submit({**JOB, "env": {"TOKEN": "hunter2"}, "checkpoint": "signal"})

    assert ("sleep", "queued", 1024, "signal") == tuple(
        made[key] for key in ("name", "state", "mem_mib", "checkpoint")
    )
    assert {"TOKEN": "hunter2"} == desk.environments[0]
    assert [made["id"]] == [job["id"] for job in client.jobs()]
    assert made == client.job(made["id"])
    assert "hunter2" not in json.dumps(client.job(made["id"]))


def test_the_caller_is_who_the_kernel_says(client: Client, desk: Counter) -> None:
    """No field or header of the request has a part in it."""
    client.submit(JOB)

    (caller,) = desk.callers
    assert (os.getuid(), os.getgid(), os.getpid()) == (caller.uid, caller.gid, caller.pid)
    assert os.getgid() in caller.groups


@pytest.mark.skipif(os.getuid() != 0, reason="becoming another user needs root")
def test_another_user_is_another_caller(desk: Counter) -> None:
    """The socket is open to all, and each is himself, whatever he claims."""
    program = (
        "import os, socket, sys\n"
        "s = socket.socket(socket.AF_UNIX)\n"
        "os.setgroups([]); os.setgid(4001); os.setuid(4001); s.connect(sys.argv[1])\n"
        "s.sendall(b'POST /v1/nodes/n1/drain HTTP/1.0\\r\\nX-Forwarded-For: 127.0.0.1\\r\\n"
        "X-Uid: 0\\r\\n\\r\\n')\n"
        "print(s.makefile().read())"
    )
    # The folders that pytest makes are closed to others.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with opened(Path(folder) / "api.sock", desk) as path:
            found = subprocess.run(
                [sys.executable, "-c", program, path],
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )

    assert " 403 " in found.stdout, found.stderr
    (caller,) = desk.callers
    assert (4001, 4001, "4001", (4001,), False) == (
        caller.uid,
        caller.gid,
        caller.name,
        caller.groups,
        caller.is_admin,
    )


def test_administrators_are_a_group() -> None:
    """Root always, members by their account, nobody through a group that is not there."""
    mine = my_group()
    me = Peer(pid=1, uid=os.getuid(), gid=os.getgid())

    assert caller_of(Peer(1, 0, 0), "no-such-group").is_admin
    assert caller_of(me, mine).is_admin
    assert not caller_of(Peer(1, 4001, 4001), mine).is_admin
    assert not caller_of(Peer(1, 4001, 4001), "no-such-group").is_admin


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/jobs", b"{}", 400),
        ("POST", "/v1/jobs", b"", 400),
        ("POST", "/v1/jobs", b"\xff", 400),
        ("POST", "/v1/jobs", b" " * (3 << 20), 413),
        ("GET", "/v1/jobs/x", None, 400),
        ("GET", "/v1/jobs/0", None, 400),
        ("GET", f"/v1/jobs/{2**64}", None, 400),
        ("GET", "/v1/jobs/99", None, 404),
        ("GET", "/v1/jobs/99/logs", None, 404),
        ("GET", "/v1/jobs?all=perhaps", None, 400),
        ("POST", "/v1/jobs/99/cancel", None, 404),
        ("POST", "/v1/nodes/n9/drain", None, 404),
        ("POST", "/v1/nodes/a%20b/drain", None, 404),
        ("POST", "/v1/nodes/n1/vacate", b"{}", 400),
        ("POST", "/v1/nodes/n1/vacate", b'{"seconds": 0}', 400),
        ("POST", "/v1/nodes/n1/vacate", b'{"seconds": 1e99}', 400),
        ("POST", "/v1/panic", b'{"nodes": "n1"}', 400),
        ("POST", "/v1/panic", b'{"nodes": ["a b"]}', 404),
        ("POST", "/v1/nodes/n1/setup", b'{"dry_run": "yes"}', 400),
        ("GET", "/v2/jobs", None, 404),
        ("DELETE", "/v1/jobs/1", None, 405),
        ("POST", "/v1/hooks/prolog", b"{}", 404),
    ],
)
def test_every_error_has_the_same_form(
    door: Path, desk: Counter, *, method: str, path: str, body: bytes | None, status: int
) -> None:
    """An error and a hint, whoever found the fault; and nothing was changed."""
    found, document = ask(UnixConnection(door), method, path, body)

    assert status == found
    assert {"error", "hint"} == set(document)
    assert document["error"]
    assert not desk.found


def test_a_failure_of_the_daemon_is_told_without_details(door: Path, desk: Counter) -> None:
    """A fault of ours is a 500 with a place to look."""
    desk.printed = None  # type: ignore[assignment]  # a fault to be hit
    Client(door).submit(JOB)
    status, document = ask(UnixConnection(door), "GET", "/v1/jobs/1/logs")

    assert (500, "the daemon failed: TypeError") == (status, document["error"])


def test_a_log_that_breaks_off_is_not_taken_for_whole(client: Client, desk: Counter) -> None:
    """What fails after the answer began is no end."""
    desk.printed = [b"one", 2]  # type: ignore[list-item]  # a fault to be hit
    client.submit(JOB)

    with pytest.raises(DaemonUnreachableError, match="did not finish"):
        list(client.logs(1))


def test_what_is_no_http_is_refused(door: Path) -> None:
    """Garbage gets an answer and the door stays open."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(10)
        sock.connect(str(door))
        sock.sendall(b"\x16\x03\x01 hello\r\n\r\n")

        assert sock.recv(100).startswith(b"HTTP/1.1 400")
    assert Client(door).status()["healthy"]


def test_verbs_are_idempotent(client: Client) -> None:
    """Asking twice is no mistake, and the answer says so."""
    job = client.submit(JOB)["id"]

    assert "cancelled" == client.cancel(job)["result"]
    assert "already_cancelled" == client.cancel(job)["result"]
    assert "drained" == client.drain("n1")["result"]
    assert "already_drained" == client.drain("n1")["result"]


def test_logs_are_raw_bytes(client: Client) -> None:
    """Nothing is decoded, added or lost."""
    job = client.submit(JOB)["id"]

    assert b"one\n\xff\x00two\n" == b"".join(client.logs(job))


def test_a_large_log_arrives_whole(client: Client, desk: Counter) -> None:
    """It is streamed, not gathered."""
    desk.printed = [bytes([i % 256]) * 65536 for i in range(100)]
    job = client.submit(JOB)["id"]

    assert b"".join(desk.printed) == b"".join(client.logs(job))


def test_following_goes_on_until_the_job_ends(client: Client, desk: Counter) -> None:
    """What is there comes at once, the rest when it is there."""
    job = client.submit(JOB)["id"]
    chunks = client.logs(job, follow=True)

    assert b"one\n" == next(chunks)[:4]
    desk.may_go_on.set()
    assert b"last\n" == b"".join(chunks)[-5:]


def test_a_reader_who_leaves_ends_his_stream(client: Client, desk: Counter) -> None:
    """Nobody reads an engine's log for nobody."""
    job = client.submit(JOB)["id"]
    chunks = client.logs(job, follow=True)
    next(chunks)
    chunks.close()  # type: ignore[attr-defined]  # it is a generator

    until(lambda: not desk.open_logs)


def test_many_followers_do_not_stop_quick_calls(client: Client, desk: Counter) -> None:
    """The slow have threads of their own, and beyond them an answer that says so."""
    job = client.submit(JOB)["id"]
    followers = [client.logs(job, follow=True) for _ in range(50)]
    for follower in followers:
        next(follower)

    assert client.status()["healthy"]
    for follower in followers:
        follower.close()  # type: ignore[attr-defined]  # it is a generator
    until(lambda: not desk.open_logs)


def test_followers_do_not_keep_the_door_open(tmp_path: Path) -> None:
    """Stopping cuts them off, in time."""
    # What it cuts off ends with the process, and would be open for other tests.
    server = ApiServer(tmp_path / "s", Counter())
    server.start()
    job = Client(tmp_path / "s").submit(JOB)["id"]
    chunks = Client(tmp_path / "s").logs(job, follow=True)
    next(chunks)
    server.stop()

    with pytest.raises(DaemonUnreachableError, match="did not finish"):
        list(chunks)
    assert not (tmp_path / "s").exists()


def test_the_socket_is_open_to_all_in_a_folder_that_is(tmp_path: Path, desk: Counter) -> None:
    """Identity does not come from permissions, whatever the daemon's umask is."""
    before = os.umask(0o077)
    try:
        with opened(tmp_path / "run" / "api.sock", desk) as path:
            assert 0o666 == path.stat().st_mode & 0o777
            assert 0o755 == path.parent.stat().st_mode & 0o777
    finally:
        os.umask(before)
    assert [] == list(path.parent.iterdir())


def test_a_second_server_is_refused(door: Path, desk: Counter) -> None:
    """One daemon answers at one place, and the first goes on."""
    with pytest.raises(ListenError, match=r"answers at .* already"):
        ApiServer(door, desk).start()

    assert Client(door).status()["healthy"]


def test_what_a_dead_daemon_left_behind_is_replaced(tmp_path: Path, desk: Counter) -> None:
    """After a crash nobody has to clean up."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "api.sock"))

    with opened(tmp_path / "api.sock", desk) as path:
        assert Client(path).status()["healthy"]


def test_what_is_no_socket_is_left_alone(tmp_path: Path, desk: Counter) -> None:
    """A typo in the configuration deletes nothing."""
    path = tmp_path / "config.toml"
    path.write_text("precious")

    with pytest.raises(ListenError, match="is not a socket"):
        ApiServer(path, desk).start()
    assert "precious" == path.read_text()


def test_a_path_that_cannot_be_is_told(tmp_path: Path, desk: Counter) -> None:
    """A unix socket's path has 107 bytes."""
    with pytest.raises(ListenError, match=r"change daemon\.socket"):
        ApiServer(tmp_path / ("x" * 120), desk).start()


def test_it_can_be_stopped_twice_and_started_again(tmp_path: Path, desk: Counter) -> None:
    """The owner's shut-down path may be walked from any point."""
    server = ApiServer(tmp_path / "s", desk)
    server.stop()
    for _ in range(2):
        server.start()
        assert Client(tmp_path / "s").status()["healthy"]
        server.stop()
        server.stop()


@pytest.mark.parametrize("kind", ["missing", "deaf", "file"])
def test_without_a_daemon_the_client_says_what_to_do(tmp_path: Path, kind: str) -> None:
    """Not there and not listening are one kind of error."""
    path = tmp_path / "s"
    if kind == "deaf":
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(path))
    elif kind == "file":
        path.write_text("")

    with pytest.raises(DaemonUnreachableError, match="no daemon answers") as caught:
        Client(path).status()
    assert "STOPGAP_SOCKET" in caught.value.hint


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"SSH-2.0-OpenSSH\r\n",
    ],
)
def test_an_answer_that_breaks_off_is_no_answer(tmp_path: Path, answer: bytes) -> None:
    """A daemon that dies while it answers has perhaps done it: the hint says to look."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()

        def once() -> None:
            with listener.accept()[0] as sock:
                sock.recv(4096)
                sock.sendall(answer)

        thread = threading.Thread(target=once)
        thread.start()
        with pytest.raises(DaemonUnreachableError, match="did not finish") as caught:
            Client(tmp_path / "s").cancel(1)
        thread.join()
    assert "look before asking again" in caught.value.hint


def test_a_refusal_is_the_daemons_own_words(client: Client) -> None:
    """Error, hint and status arrive unchanged."""
    with pytest.raises(ClientRefusedError) as caught:
        client.job(99)

    assert ("there is no job 99 of yours", "stopgap queue lists them", 404) == (
        caught.value.error,
        caught.value.hint,
        caught.value.status,
    )


def test_text_that_is_none_is_refused_by_the_daemon(client: Client) -> None:
    """Undecodable arguments of a shell get an answer, not a traceback."""
    with pytest.raises(ClientRefusedError):
        client.submit({**JOB, "command": ["\udcff"]})
    with pytest.raises(ClientRefusedError):
        client.drain("\udcff")
