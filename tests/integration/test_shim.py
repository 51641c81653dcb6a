"""The shim on real engines: tickets, moving a job, and what must not go wrong."""

import itertools
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.shim_jobs import STEADY, assert_gap_free, wait_progress
from tests.integration.shim_kit import EngineSaidError, ShimNode
from tests.testbed import Bed, missing, wait_until

pytestmark = [
    pytest.mark.bed,
    pytest.mark.skipif(bool(missing()), reason=f"this machine lacks {missing()}"),
]
_jobs = itertools.count(100)
SLEEP = ["sleep", "1000"]
COUNT = ["python3", "-c", "import time\nfor n in range(10**9): print(n, flush=True); time.sleep(.01)"]


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[ShimNode, ShimNode]]:
    with Bed.start(nodes=2) as bed:
        first, second = (ShimNode(bed, name) for name in bed.nodes)
        first.install()
        second.install()
        yield first, second


@pytest.fixture
def job(pair: tuple[ShimNode, ShimNode]) -> Iterator[int]:
    """A job number of the test's own; afterwards nothing of the job is left."""
    number = next(_jobs)
    yield number
    for node in pair:
        for listed in node.api("GET", "/containers/json?all=1"):
            if listed["Names"][0].startswith(f"/{node.name}-{number}-"):
                node.remove(listed["Id"])
        for epoch in range(1, 30):
            assert node.verb("reap", number, epoch) == {"processes": 0}
        (node.install_dir / "state" / "prolog").unlink(missing_ok=True)
        node.configure()
    shutil.rmtree(pair[0].bed.checkpoints / str(number), ignore_errors=True)


@pytest.fixture
def one(pair: tuple[ShimNode, ShimNode]) -> ShimNode:
    return pair[0]


@pytest.fixture
def other(pair: tuple[ShimNode, ShimNode]) -> ShimNode:
    return pair[1]


# -- tickets --------------------------------------------------------------------------------------


def _unsigned(node: ShimNode, job: int) -> list[str]:
    payload, _, _ = node.ticket(job, 1).partition(".")
    return [f"STOPGAP_TICKET={payload}.{'0' * 64}"]


REFUSALS: dict[str, tuple[Callable[[ShimNode, int], list[str]], str]] = {
    "unsigned": (_unsigned, "not signed with this node's key"),
    "other-node": (
        lambda n, j: [f"STOPGAP_TICKET={n.ticket(j, 1, node='elsewhere')}"],
        "the ticket is for node elsewhere",
    ),
    "other-instance": (
        lambda n, j: [f"STOPGAP_TICKET={n.ticket(j, 1, instance='other')}"],
        "of other",
    ),
    "wrong-epoch": (lambda n, j: [f"STOPGAP_TICKET={n.ticket(j, 2)}"], "cgroup parent"),
    "wrong-uid": (lambda n, j: [f"STOPGAP_TICKET={n.ticket(j, 1, uid=7)}"], "uid 7"),
    "expired": (
        lambda n, j: [f"STOPGAP_TICKET={n.ticket(j, 1, expires=time.time() - 1)}"],
        "expired",
    ),
    "future": (
        lambda n, j: [f"STOPGAP_TICKET={n.ticket(j, 1, seen=time.time() + 60)}"],
        "from the future",
    ),
    "odd-name": (
        lambda n, j: [f"STOPGAP_TICKET={n.ticket(j, 1)}", "STOPGAP_TICKET2=x"],
        "the only variable",
    ),
    "empty": (lambda _n, _j: ["STOPGAP_TICKET="], "not signed"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_bad_ticket_is_refused_with_its_reason(one: ShimNode, job: int, name: str) -> None:
    """
    Nothing is started with a ticket that is not exactly right, and Docker says why.
    """
    env, words = REFUSALS[name]
    container = one.create(job, 1, SLEEP, env=env(one, job))

    with pytest.raises(EngineSaidError, match=words):
        one.start(container)

    assert [] == one.processes(job, 1)


def test_ticket_is_good_once(one: ShimNode, job: int) -> None:
    """
    ``docker restart`` by anybody starts nothing a second time.
    """
    container = one.run(job, 1, SLEEP)

    with pytest.raises(EngineSaidError, match="used before"):
        one.api("POST", f"/containers/{container}/restart?t=0")

    assert [] == one.processes(job, 1)


def test_job_does_not_see_its_ticket(one: ShimNode, job: int) -> None:
    """
    The variable is gone before the job's first instruction.
    """
    container = one.run(job, 1, ["env"])
    one.wait(container)

    assert b"PATH=" in one.logs(container)
    assert b"STOPGAP" not in one.logs(container)


def test_other_containers_pass_through(one: ShimNode, job: int) -> None:
    """
    Without a ticket the runtime is runc.
    """
    container = one.run(job, 1, ["sh", "-c", "echo it works; exit 7"], env=[])

    assert 7 == one.wait(container)
    assert b"it works\n" == one.logs(container)


def test_ticket_older_than_the_prolog_is_refused(one: ShimNode, job: int) -> None:
    """
    A look at the batch system from before a prolog proves nothing any more.
    """
    early = one.ticket(job, 1)
    one.prolog()
    container = one.create(job, 1, SLEEP, env=[f"STOPGAP_TICKET={early}"])

    with pytest.raises(EngineSaidError, match="a prolog has claimed this node"):
        one.start(container)

    assert [] == one.processes(job, 1)


# -- moving ---------------------------------------------------------------------------------------


def test_twenty_rounds_are_gap_free(pair: tuple[ShimNode, ShimNode], job: int) -> None:
    """
    A job between two nodes keeps its log, files, lock, threads and connections.
    """
    data = pair[0].bed.data / str(job)
    data.mkdir()
    command = ["python3", "-c", STEADY]
    out = err = b""
    generation = None
    for epoch in range(1, 22):
        node = pair[epoch % 2]
        container = node.run(job, epoch, command, generation=generation, binds=[f"{data}:/data"])
        wait_progress(node, container, 5)
        node.checkpoint(container)
        assert 137 == node.wait(container)
        assert [] == node.processes(job, epoch)
        receipt = node.receipt(job, epoch)
        assert receipt["ok"]
        generation = receipt["generation"]
        out, err = out + node.logs(container), err + node.logs(container, "stderr")
        node.remove(container)

    assert_gap_free(out)
    assert out == err == (data / "count").read_bytes()
    shutil.rmtree(data)


def test_writable_layer_arrives_whole(one: ShimNode, other: ShimNode, job: int) -> None:
    """
    Deletions, opaque directories, modes, owners, attributes, links and holes move along.
    """
    container = one.run(job, 1, ["python3", "-c", _LAYER], host={"CapDrop": []})
    wait_until(lambda: one.logs(container), 20, "the layer")
    before = _tree(one, job, 1)
    one.checkpoint(container)
    one.wait(container)
    resumed = other.run(job, 2, ["python3", "-c", _LAYER], generation=1, host={"CapDrop": []})
    after = _tree(other, job, 2)
    other.remove(resumed)

    assert before == after
    assert "/etc/passwd" not in after
    assert "/etc/apt/new" not in before or ["/etc/apt/new"] == [
        path for path in after if path.startswith("/etc/apt/")
    ]


_LAYER = r"""
import os, shutil, time
os.unlink("/etc/passwd")
shutil.rmtree("/usr/lib/python3") if os.path.isdir("/usr/lib/python3") else None
names = os.listdir("/root")
shutil.rmtree("/var"); os.mkdir("/var"); os.mkdir("/var/opaque", 0o2711)
os.mkdir("/made"); os.mkdir("/made/empty", 0o1700)
open("/made/plain", "w").write("text"); os.chmod("/made/plain", 0o4755)
os.chown("/made/plain", 1234, 4321); os.chmod("/made/plain", 0o4755)
os.link("/made/plain", "/made/hard"); os.symlink("/nowhere/../x", "/made/soft")
os.lchown("/made/soft", 77, 88)
os.mkfifo("/made/fifo", 0o620)
os.setxattr("/made/plain", "user.note", b"\x00\xff=\n binary")
cap = b"\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
open("/made/capable", "w").close(); os.setxattr("/made/capable", "security.capability", cap)
with open("/made/sparse", "wb") as f:
    f.seek(3 << 20); f.write(b"middle"); f.truncate(200 << 20)
for name in (b"/made/new\nline", b"/made/\xff\xfe", "/made/\u00fc".encode(), b"/made/ blank ",
             b"/made/" + b"n" * 255):
    open(name, "wb").write(name)
os.utime("/made/plain", ns=(1234567890123456789, 1234567890123456789))
os.chmod("/usr/share", 0o711)
os.unlink("/etc/group") ; os.mkdir("/etc/group"); open("/etc/group/file", "w").close()
shutil.rmtree("/home") if os.path.isdir("/home") else None
open("/home", "w").write("a file now")
print("done", flush=True)
while True: time.sleep(1)
"""


def _tree(node: ShimNode, job: int, epoch: int) -> dict[str, object]:
    """Describe the root file system that a job sees, without what is mounted there."""
    root = f"/proc/{node.processes(job, epoch)[0]}/root"
    device = os.lstat(root).st_dev
    inodes: dict[int, str] = {}
    found: dict[str, object] = {}
    for folder, folders, files in os.walk(os.fsencode(root)):
        folders[:] = [f for f in folders if os.lstat(folder + b"/" + f).st_dev == device]
        for name in sorted(folders + files):
            path = folder + b"/" + name
            facts = os.lstat(path)
            shown = path[len(root) :].decode("utf-8", "backslashreplace")
            if facts.st_dev != device or shown in ("/etc/hosts", "/etc/resolv.conf"):
                continue
            content: object = None
            if os.path.islink(path):
                content = os.readlink(path)
            elif facts.st_mode & 0o170000 == 0o100000:
                content = (facts.st_size, facts.st_blocks < facts.st_size // 512 // 2)
                content = (content, hash(Path(os.fsdecode(path)).read_bytes()))
            names = os.listxattr(path, follow_symlinks=False)
            found[shown] = (
                oct(facts.st_mode),
                facts.st_uid,
                facts.st_gid,
                facts.st_mtime_ns if name in (b"plain", b"sparse") else None,
                content,
                {n: os.getxattr(path, n, follow_symlinks=False) for n in names},
                inodes.setdefault(facts.st_ino, shown) if facts.st_nlink > 1 else None,
            )
    return found
