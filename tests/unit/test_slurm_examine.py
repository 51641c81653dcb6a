"""What in a site's Slurm stands in the way of stopgap."""

from pathlib import Path

import pytest

from adapters.slurm.examine import Site, findings
from adapters.slurm.parse import parse_config

DATA = Path(__file__).parents[1] / "data"
SITE = Site(version="22.05.8", uid=0, hook_seconds=60, hook_path="")
GOOD = parse_config((DATA / "slurm-22.05.8/look/idle/config.out").read_text())


def test_a_site_that_is_set_up_has_no_findings() -> None:
    """
    The bed's configuration, captured, is as it should be.
    """
    assert () == findings(GOOD, SITE)


@pytest.mark.parametrize("version", ["22.05.8", "24.11.5"])
def test_a_site_that_was_never_set_up(version: str) -> None:
    """
    Without a prolog both its lines are missing, in every version's notation.
    """
    path = DATA / f"slurm-{version}/01-idle/scontrol_show_config.out"
    site = Site(version=version, uid=0, hook_seconds=60, hook_path="/opt/stopgap/prolog")
    first, second = findings(parse_config(path.read_text()), site)

    assert first.startswith("Prolog is not set: set Prolog=/opt/stopgap/prolog,")
    assert second.startswith("PrologFlags lacks Alloc")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"SuspendTime": "600 sec"}, "SuspendTime=600"),
        ({"PrologFlags": "Serial"}, "PrologFlags lacks Alloc"),
        ({"PrologEpilogTimeout": "60 sec"}, "PrologEpilogTimeout=60 is not longer"),
        ({"Prolog": "(null)"}, "Prolog is not set"),
        ({"SLURM_VERSION": "21.08.1"}, "the commands here are Slurm 22.05.8, the controller"),
    ],
)
def test_each_finding(changes: dict[str, str], told: str) -> None:
    """
    One thing wrong is one sentence.
    """
    (finding,) = findings({**GOOD, **changes}, SITE)

    assert finding.startswith(told)


@pytest.mark.parametrize(
    "changes",
    [
        {"SuspendTime": "INFINITE"},
        {"SuspendTime": "-1 sec"},
        {"SuspendTime": "NONE"},
        {"PrologFlags": "Contain"},
        {"PrologFlags": "Alloc,Serial,X11"},
        {"PrologEpilogTimeout": "65534"},
        {"PrologEpilogTimeout": "65534 sec"},
        {"PrivateData": "none"},
        {"PrivateData": "jobs,nodes"},
    ],
)
def test_what_is_fine(changes: dict[str, str]) -> None:
    """
    Other ways to be right; root sees what is private.
    """
    assert () == findings({**GOOD, **changes}, SITE)


def test_private_data_blind_an_ordinary_user() -> None:
    """
    Whoever cannot see all jobs takes nodes for idle that are not.
    """
    private = {**GOOD, "PrivateData": "jobs,usage", "SlurmUser": "slurm(64030)"}
    nobody = Site(version="22.05.8", uid=1000, hook_seconds=60, hook_path="")
    slurm = Site(version="22.05.8", uid=64030, hook_seconds=60, hook_path="")

    (finding,) = findings(private, nobody)
    assert finding.startswith("PrivateData=jobs,usage hides jobs and nodes from uid 1000")
    assert () == findings(private, slurm)


def test_another_prolog_must_run_ours() -> None:
    """
    Several prologs in a row are fine when ours is one of them.
    """
    site = Site(version="22.05.8", uid=0, hook_seconds=60, hook_path="/opt/stopgap/prolog")
    (finding,) = findings({**GOOD, "Prolog": "/etc/slurm/prolog"}, site)
    several = parse_config(
        "Prolog[0]               = /etc/slurm/prolog\n"
        "Prolog[1]               = /opt/stopgap/prolog\n"
    )

    assert (
        "Prolog=/etc/slurm/prolog is not /opt/stopgap/prolog: make sure that it runs that too"
        == (finding)
    )
    assert () == findings({**GOOD, **several}, site)


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("21.08.8-2", "older than 22.05"),
        ("26.11.0", "newer than what stopgap was tried with"),
        ("27.05.1", "newer than what stopgap was tried with"),
    ],
)
def test_a_version_that_was_not_tried_is_told(version: str, told: str) -> None:
    """
    Its text is read as that of the nearest one.
    """
    site = Site(version=version, uid=0, hook_seconds=60, hook_path="")
    (finding,) = findings({**GOOD, "SLURM_VERSION": version}, site)

    assert told in finding


@pytest.mark.parametrize("version", ["22.05.8", "23.11.10", "25.11.1-1", "26.05.5"])
def test_versions_that_are_known_are_no_finding(version: str) -> None:
    """
    From 22.05 to 26.05 the text is the same.
    """
    site = Site(version=version, uid=0, hook_seconds=60, hook_path="")

    assert () == findings({**GOOD, "SLURM_VERSION": version}, site)


def test_hidden_reservations_are_found() -> None:
    """
    Who may not see them learns of them when they begin.
    """
    site = Site(version="22.05.8", uid=1000, hook_seconds=60, hook_path="")
    (finding,) = findings({**GOOD, "PrivateData": "reservations"}, site)

    assert "hides reservations from uid 1000" in finding
