"""The prolog: with and without a daemon, and against everything under way."""

import hashlib
import hmac
import http.server
import json
import os
import queue
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, Self

import pytest

from tests.integration.shim.jobs import COUNT, LARGE, assert_gap_free, wait_progress
from tests.integration.shim.kit import FREEZER, EngineSaidError, ShimNode
from tests.testbed import wait_until
from tests.testbed.processes import command, everybody

pytestmark = pytest.mark.bed


@pytest.mark.usefixtures("job")
def test_prolog_of_an_empty_node_only_leaves_its_mark(one: ShimNode) -> None:
    """
    Where nothing of ours is, a priority job does not wait.
    """
    answer = one.prolog()

    assert (0, "") == (answer.returncode, answer.stderr)
    assert (one.install_dir / "state" / "prolog").exists()


def test_prolog_vacates_without_a_daemon(one: ShimNode, job: int) -> None:
    """
    Nobody answers: our jobs stand still at once and are gone when the time is up.
    """
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        one.configure(daemon_url=url, hook_unreachable_seconds=2)
        container = one.run(job, 1, COUNT)
        wait_progress(one, container)
        with ThreadPoolExecutor(1) as pool:
            prologue = pool.submit(one.prolog)
            wait_until(lambda: one.frozen(job, 1, container), 2, "the freeze", every=0.005)
            seen = one.logs(container)
            assert 0 == prologue.result().returncode

    assert [] == one.processes(job, 1)
    assert 137 == one.wait(container)
    assert seen == one.logs(container)


def test_prolog_tells_the_daemon_and_waits_for_the_checkpoint(
    one: ShimNode, other: ShimNode, job: int
) -> None:
    """
    The daemon hears of it, signed; the job is saved frozen, and the prolog ends after it.
    """
    with _HookServer(one) as server:
        one.configure(daemon_url=server.url)
        container = one.run(job, 1, COUNT)
        wait_progress(one, container)
        with ThreadPoolExecutor(1) as pool:
            prologue = pool.submit(one.prolog)
            heard = server.heard.get(timeout=10)
            assert one.frozen(job, 1, container)
            one.checkpoint(container)
            assert 0 == prologue.result().returncode

    assert (one.name, "4711", 60.0) == (heard["node"], heard["job"], heard["seconds"])
    assert [] == one.processes(job, 1)
    assert one.receipt(job, 1)["found_frozen"]
    resumed = other.run(job, 2, COUNT, generation=1)
    wait_progress(other, resumed)
    assert_gap_free(one.logs(container) + other.logs(resumed))


def test_freeze_of_what_is_dying_keeps_no_container(one: ShimNode, job: int) -> None:
    """
    A cgroup that somebody froze while its last process died does not stop the engine's cleaning up.
    """
    container = one.run(job, 1, COUNT)
    wait_progress(one, container)
    place = FREEZER / one.cgroup_parent(job, 1).lstrip("/") / container / "freezer.state"

    def dead() -> bool:
        for pid in one.processes(job, 1):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(OSError):
            place.write_text("THAWED")
            place.write_text("FROZEN")
        return not one.processes(job, 1)

    wait_until(dead, 10, "the last process to die", every=0.001)

    assert 137 == one.wait(container)
    one.remove(container)
    wait_until(lambda: not _shims(container), 10, "the end of the container's own process")


def _has_members(procs: Path) -> bool:
    return procs.exists() and bool(procs.read_text())


def _shims(container: str) -> list[tuple[str, ...]]:
    return [words for words in map(command, everybody()) if container in words]


class _HookServer:
    """The daemon's side of the hook: accepts what is signed with the node's key."""

    def __init__(self, node: ShimNode) -> None:
        self.heard: queue.Queue[dict[str, Any]] = queue.Queue()
        heard = self.heard

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # the library's name
                body = self.rfile.read(int(self.headers["Content-Length"]))
                mac = hmac.new(node.key, body, hashlib.sha256).hexdigest()
                good = self.path == "/v1/hooks/prolog"
                good = good and mac == self.headers["X-Stopgap-Signature"]
                self.send_response(202 if good else 403)
                self.end_headers()
                if good:
                    heard.put(json.loads(body))

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.mark.parametrize("offset", [0.0, 0.03, 0.08, 0.15, 0.3])
def test_prolog_and_start_exclude_each_other(one: ShimNode, job: int, offset: float) -> None:
    """
    When a prolog has ended, nothing of ours runs, and what was under way does not start.
    """
    one.configure(hook_unreachable_seconds=1)
    container = one.create(job, 1, COUNT)
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(one.start, container)
        Event().wait(offset)
        prologue = one.prolog()
        assert 0 == prologue.returncode
        assert [] == one.processes(job, 1)
        seen = one.logs(container)
        with suppress(EngineSaidError):
            starting.result()

    assert [] == one.processes(job, 1)
    assert seen == one.logs(container)


def test_prolog_does_not_wait_for_what_it_has_frozen(one: ShimNode, job: int) -> None:
    """
    A container that is frozen while runc makes it, or before its start, is given up at once.

    Now and then a start is faster than the prolog: such a job is as any other that runs.
    """
    one.configure(hook_unreachable_seconds=60)
    caught = 0
    for epoch in range(1, 60):
        caught += _is_caught(one, job, epoch)
        if caught == 12:
            return
    pytest.fail(f"{caught} of 59 starts were caught")


def _is_caught(one: ShimNode, job: int, epoch: int) -> bool:
    container = one.create(job, epoch, COUNT)
    place = FREEZER / one.cgroup_parent(job, epoch).lstrip("/") / container / "cgroup.procs"
    begun = partial(_has_members, place)
    with ThreadPoolExecutor(2) as pool:
        starting = pool.submit(one.start, container)
        wait_until(begun, 20, "runc", every=0.0002)
        prolog = pool.submit(one.prolog, seconds=30)
        refused = starting.exception()
        if refused is None:
            one.remove(container)
        assert 0 == prolog.result().returncode
    assert [] == one.processes(job, epoch)
    (one.install_dir / "state" / "prolog").unlink()
    if refused is not None:
        assert isinstance(refused, EngineSaidError)
        assert "a prolog has claimed" in str(refused)
        assert b"" == one.logs(container)
    return refused is not None


@pytest.mark.parametrize("cancelled", [False, True], ids=["saved", "cancelled"])
def test_freeze_during_a_dump_neither_stalls_nor_is_lost(
    one: ShimNode, job: int, cancelled: bool
) -> None:
    """
    A prolog in the middle of a checkpoint lets CRIU work, and the job stays frozen if it fails.
    """
    container = one.run(job, 1, LARGE)
    wait_progress(one, container)
    folder = one.checkpoints / str(job)
    with ThreadPoolExecutor(1) as pool:
        saving = pool.submit(one.checkpoint, container)
        wait_until((folder / "1/images/pages-1.img").exists, 20, "the dump", every=0.0005)
        assert {"frozen": True} == one.verb("freeze", job, 1)
        if cancelled:
            (folder / "cancel").touch()
            with pytest.raises(EngineSaidError, match="cancelled"):
                saving.result()
        else:
            saving.result()

    if cancelled:
        (folder / "cancel").unlink()
        assert one.frozen(job, 1, container)
        one.checkpoint(container)
    assert 137 == one.wait(container)
    assert [] == one.processes(job, 1)
    assert_gap_free(one.logs(container))
