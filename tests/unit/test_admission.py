"""What a submitter may have."""

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemon.api.admission import admit, admit_saving
from daemon.api.ports import Caller, Refused
from daemon.api.schemas import JobRequest, MountRequest
from daemon.config import JobsSection
from daemon.core.types import CheckpointMode

ALICE = Caller(uid=4001, gid=4001, pid=1, name="alice", groups=(4001, 4100), is_admin=False)
ROOT = Caller(uid=0, gid=0, pid=1, name="root", groups=(0,), is_admin=True)


@pytest.fixture
def data() -> Iterator[Path]:
    """A shared directory that everybody may enter, unlike those that pytest makes."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        place.chmod(0o755)
        yield place


def ask(
    caller: Caller = ALICE,
    *,
    mounts: tuple[Path | str, ...] = (),
    prefixes: Any = (),
    **wanted: Any,
) -> None:
    request = JobRequest(
        image="busybox:1",
        command=("true",),
        mounts=tuple(MountRequest(source=str(m), target=f"/m{i}") for i, m in enumerate(mounts)),
        **wanted,
    )
    limits = JobsSection(
        mounts=tuple(map(str, prefixes)), max_cpus=4, max_memory_mib=4096, max_per_user=3
    )
    admit(caller, request, limits, unended=0)


def refusal(*args: Any, **wanted: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        ask(*args, **wanted)
    assert caught.value.hint
    return caught.value


def test_what_lies_in_the_list_may_be_mounted(data: Path) -> None:
    """The listed place itself, what is below, and what cannot be seen from here."""
    (data / "run 1").mkdir()
    ask(mounts=(data, data / "run 1"), prefixes=[data])
    ask(mounts=("/not-on-this-host/x",), prefixes=["/not-on-this-host"])


@pytest.mark.parametrize("source", ["/etc", "/", "{data}2", "{data}-old/x"])
def test_what_lies_elsewhere_may_not(data: Path, source: str) -> None:
    """A common beginning of the names is not enough."""
    found = refusal(mounts=(source.format(data=data),), prefixes=[data])

    assert 403 == found.status
    assert str(data) in found.hint


def test_without_a_list_nothing_may_be_mounted(data: Path) -> None:
    """The default is none."""
    assert "jobs.mounts" in refusal(mounts=(data,)).hint


def test_a_link_leads_nowhere_else(data: Path) -> None:
    """A listed name that points out of the list is judged by where it points."""
    (data / "etc").symlink_to("/etc")

    assert "/etc" in refusal(mounts=(data / "etc",), prefixes=[data]).error


def test_a_socket_cannot_be_brought_along(data: Path) -> None:
    """Its other end stays on the node."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(data / "s"))

        assert "is a socket" in refusal(mounts=(data / "s",), prefixes=[data]).error


def test_a_pipe_cannot_be_brought_along(data: Path) -> None:
    """Neither can what is no file."""
    os.mkfifo(data / "p")

    assert "is a named pipe" in refusal(mounts=(data / "p",), prefixes=[data]).error


def test_a_source_that_is_missing_is_told(data: Path) -> None:
    """Before the engine would."""
    assert "does not exist" in refusal(mounts=(data / "typo",), prefixes=[data]).error


@pytest.mark.parametrize(
    ("mode", "gid", "may"),
    [(0o700, 0, False), (0o750, 4100, True), (0o750, 0, False), (0o711, 0, True)],
)
def test_a_mount_is_no_way_around_a_closed_folder(
    data: Path, mode: int, gid: int, *, may: bool
) -> None:
    """The engine mounts as root, so nobody else asks whether the submitter could get there."""
    if os.getuid() != 0:
        pytest.skip("giving a folder to a group needs root")
    inner = data / "bob" / "public"
    inner.mkdir(parents=True, mode=0o755)
    os.chown(inner.parent, 4002, gid)
    inner.parent.chmod(mode)

    if may:
        ask(mounts=(inner,), prefixes=[data])
    else:
        assert "you may not enter" in refusal(mounts=(inner,), prefixes=[data]).error


def test_too_much_is_told_with_the_limit() -> None:
    """The hint is an option that works."""
    assert "--cpus 4" in refusal(cpus=5).hint
    assert "--mem 4096M" in refusal(mem_mib=4097).hint


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"checkpoint_every_seconds": 299}, "--checkpoint-every 5"),
        ({"checkpoint_every_seconds": 600, "checkpoint": CheckpointMode.NONE}, "--checkpoint criu"),
        ({"results": ("/elsewhere",)}, "name what it writes"),
        ({"results": ("/ro/out",)}, "name what it writes"),
        ({"results": ("/rwx",)}, "name what it writes"),
    ],
)
def test_what_is_said_of_checkpoints_must_make_sense(wanted: dict[str, Any], told: str) -> None:
    """A wish that could not be carried out is refused, not forgotten."""
    with pytest.raises(Refused) as caught:
        admit_saving(_saved_request(**wanted), 300)

    assert told in caught.value.hint


def test_what_makes_sense_of_checkpoints_is_accepted() -> None:
    """The site's least interval, and what lies on a mount that the job may write to."""
    wanted = _saved_request(checkpoint_every_seconds=300, results=("/rw", "/rw/out"))
    admit_saving(wanted, 300)


def _saved_request(**wanted: Any) -> JobRequest:
    mounts = (
        MountRequest(source="/a", target="/rw"),
        MountRequest(source="/b", target="/ro", read_only=True),
    )
    return JobRequest(image="busybox:1", command=("true",), mounts=mounts, **wanted)


def test_root_submits_only_where_the_site_says_so() -> None:
    """Root in a container is not what anybody meant."""
    assert 403 == refusal(ROOT).status
    admit(ROOT, JobRequest(image="b", command=("x",)), JobsSection(allow_root=True), unended=0)


def test_a_script_that_runs_wild_is_stopped() -> None:
    """Jobs that have not ended are counted."""
    with pytest.raises(Refused, match="this site allows 3"):
        admit(ALICE, JobRequest(image="b", command=("x",)), JobsSection(max_per_user=3), unended=3)
