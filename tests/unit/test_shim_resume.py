"""What the shim compares before and after a resume: the machine, CRIU, credentials."""

from types import ModuleType
from typing import Any

import pytest

HERE = {"machine": "x86_64", "cgroup": 2, "cpu": "avx fpu sse"}


@pytest.mark.parametrize(
    ("there", "words"),
    [
        ({}, ""),
        ({"cpu": "sse fpu"}, ""),
        ({"cpu": "fpu avx512f avx erms"}, "lacks avx512f erms"),
        ({"cgroup": 1}, "cgroup was 1"),
        ({"machine": "aarch64"}, "machine was aarch64"),
    ],
)
def test_job_goes_on_where_nothing_is_missing(
    shim: ModuleType, there: dict[str, Any], words: str
) -> None:
    """
    A processor may have more than the one before, never less.
    """
    said = shim.misfit({**HERE, **there}, HERE)

    assert words in said
    assert bool(words) == bool(said)


@pytest.mark.parametrize(
    ("there", "here", "good"),
    [
        ("4.2.1", "4.2.1", True),
        ("4.2", "4.2.1", True),
        ("4.2.1", "4.10", True),
        ("4.2", "4.1.1", False),
        ("4.2.1", "4.2", False),
        ("3.17.1", "4.2-1+deb", True),
        ("4.2", "", False),
    ],
)
def test_older_criu_is_refused(shim: ModuleType, there: str, here: str, good: bool) -> None:
    """
    It could read the images as empty, and lose memory without a word.
    """
    if good:
        shim.check_criu(there, here)
    else:
        with pytest.raises(shim.Failure, match="CRIU"):
            shim.check_criu(there, here)


STATUS = {
    "Uid": "1000\t1000\t1000\t1000",
    "Gid": "100\t100\t100\t100",
    "Groups": "20 100",
    "CapInh": "0",
    "CapPrm": "0000000000000400",
    "CapEff": "0",
    "CapBnd": "0000000000000400",
    "CapAmb": "0",
    "NoNewPrivs": "1",
    "Seccomp": "2",
}


GIVEN = {
    "process": {
        "user": {"uid": 1000, "gid": 100, "additionalGids": [20]},
        "capabilities": {
            "bounding": ["CAP_NET_BIND_SERVICE"],
            "permitted": ["CAP_NET_BIND_SERVICE"],
        },
        "noNewPrivileges": True,
    },
    "linux": {"seccomp": {"defaultAction": "SCMP_ACT_ERRNO"}},
}


def test_task_with_what_it_was_given_passes(shim: ModuleType) -> None:
    """
    Fewer capabilities than given are the job's own decision.
    """
    assert "" == shim.excess(STATUS, GIVEN)
    assert "" == shim.excess({**STATUS, "CapBnd": "0", "CapPrm": "0"}, GIVEN)


@pytest.mark.parametrize(
    "changes",
    [
        {"Uid": "0\t0\t0\t0"},
        {"Uid": "1000\t0\t1000\t1000"},
        {"Gid": "0\t0\t0\t0"},
        {"Groups": "0 20 100"},
        {"Groups": ""},
        {"CapEff": "000001ffffffffff"},
        {"CapEff": "0000000000000400"},
        {"CapBnd": "0000020000000400"},
        {"CapAmb": "1"},
        {"NoNewPrivs": "0"},
        {"Seccomp": "0"},
    ],
    ids="-".join,
)
def test_task_with_more_is_named(shim: ModuleType, changes: dict[str, str]) -> None:
    """
    The field that is wrong is in the answer.
    """
    assert shim.excess({**STATUS, **changes}, GIVEN).startswith(next(iter(changes)))
