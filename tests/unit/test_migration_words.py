"""What engines say, sorted by whom it concerns."""

from datetime import UTC, datetime

import pytest

from daemon.core.types import Epoch, Generation, JobId, JobSpec, Mount, NodeName, Owner, SegmentRef
from migration.base import (
    EngineError,
    NodeUnfitError,
    NotResumableError,
    OrderRefusedError,
    StartOrder,
)
from migration.docker import EngineSaidError
from migration.manifest import ResumeReceipt
from migration.words import missing_image, plain, refused_create, refused_start

SHIM = (
    "failed to create shim task: OCI runtime create failed: stopgap: the ticket was used before"
    ": unknown"
)


def order(*, generation: int | None = None, digest: str | None = None) -> StartOrder:
    return StartOrder(
        ref=SegmentRef(job=JobId(7), epoch=Epoch(3), node=NodeName("n1")),
        spec=JobSpec(
            name="job",
            owner=Owner(uid=1, gid=1),
            image="app",
            command=("run",),
            mounts=(Mount(source="/shared/a", target="/a"),),
        ),
        env={},
        image_digest=digest,
        seen=datetime(2026, 1, 1, tzinfo=UTC),
        generation=None if generation is None else Generation(generation),
    )


@pytest.mark.parametrize(
    ("status", "words", "kind", "match"),
    [
        (400, "Unknown runtime specified stopgap", NodeUnfitError, "stopgap node setup n1"),
        (400, "unknown or invalid runtime name: stopgap", NodeUnfitError, "node setup n1"),
        (
            400,
            'invalid mount config for type "bind": bind source path does not exist: /shared/a',
            OrderRefusedError,
            "/shared/a does not exist on n1",
        ),
        (400, "Minimum memory limit allowed is 6MB", OrderRefusedError, "6MB"),
        (500, "no space left on device", NodeUnfitError, "no space left"),
    ],
)
def test_errors_of_create(status: int, words: str, kind: type[EngineError], match: str) -> None:
    """The node is blamed unless the order itself is wrong."""
    error = refused_create(EngineSaidError(status, words), order())

    assert type(error) is kind
    assert match in str(error)


def test_a_missing_image_is_the_jobs_fault_only_before_its_first_start() -> None:
    """Later it is known to exist, so another node will do."""
    assert isinstance(missing_image(order()), OrderRefusedError)
    assert isinstance(missing_image(order(digest="sha256:1")), NodeUnfitError)


def test_the_shims_line_is_what_people_read() -> None:
    """Without the preambles of everybody on the way."""
    error = refused_start(EngineSaidError(500, SHIM), order(), None)

    assert isinstance(error, NodeUnfitError)
    assert "n1 did not start the job: the ticket was used before" == str(error)


def test_a_failed_resume_blames_the_generation() -> None:
    """With CRIU's own words."""
    receipt = ResumeReceipt(ok=False, epoch=3, began=1.0, error="runc restore", criu=["no file"])

    error = refused_start(EngineSaidError(500, "x"), order(generation=2), receipt)

    assert isinstance(error, NotResumableError)
    assert "runc restore; no file" in str(error)


@pytest.mark.parametrize("why", ["a prolog has claimed this node", "cancelled: x exists"])
def test_a_resume_that_the_node_ended_blames_the_node(why: str) -> None:
    """The generation is as good as before."""
    receipt = ResumeReceipt(ok=False, epoch=3, began=1.0, error=why)

    error = refused_start(EngineSaidError(500, "x"), order(generation=2), receipt)

    assert isinstance(error, NodeUnfitError)
    assert why in str(error)


def test_a_resume_that_was_never_tried_blames_the_node() -> None:
    """No receipt, no attempt."""
    error = refused_start(EngineSaidError(500, SHIM), order(generation=2), None)

    assert isinstance(error, NodeUnfitError)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("Error (criu/sk-unix.c:479): unix: Dangling connection 8823802", "a unix socket"),
        ("Error (criu/sk-unix.c:418): unix: Unix socket 88 without peer 81", "a unix socket"),
        ("Error (criu/sk-inet.c:185): inet: In-flight connection (l) for 870c96", "be accepted"),
        ("Error (criu/files-reg.c:1790): Can't lookup mount=82 for fd=3 path=/q", "message queue"),
        ("Error (criu/fsnotify.c:284): fsnotify: \tCan't dump that handle", "watches (inotify)"),
        (
            "Error (criu/files-ext.c:9): Can't dump file 3 of that type (anon_inode:[userfaultfd])",
            "it uses userfaultfd",
        ),
        (
            "Error (criu/files-reg.c:2353): File data/x has bad size 5 (expect 9)",
            "its file data/x has another size",
        ),
        ("write /checkpoints/7/1/layer.tar: No space left on device", "checkpoints is full"),
    ],
)
def test_criu_is_put_into_plain_words(said: str, words: str) -> None:
    """Its own first line stays, for those who know what to do with it."""
    reason = (
        f"runc checkpoint: criu failed: type NOTIFY errno 0; (00.075012) {said}; (00.1) Error ("
    )

    found = plain(reason)

    assert found.index(words) < found.index("Error (" if "criu/" in said else said)
    assert " ".join(said.split()) in found


def test_unknown_reasons_stay_as_they_are() -> None:
    """On one line."""
    assert "something went wrong" == plain("something\n  went wrong\n")


def test_plain_words_are_put_once() -> None:
    """Whoever passes a reason on may not know whether it has been put so before."""
    once = plain("Error (criu/cr-dump.c:389): Can't get rlimit 0: Operation not permitted")

    assert once.startswith("CRIU lacks CAP_SYS_RESOURCE on this node (Error")
    assert once == plain(once)
