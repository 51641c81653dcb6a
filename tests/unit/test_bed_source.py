"""Finding the machine's own Debian archive among its apt sources."""

from pathlib import Path

import pytest

from tests.testbed.debian import NoSourceError, Source, archive

STANZAS = """\
Types: deb
# a comment
URIs: http://mirror.example/debian http://second.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /keys/debian.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
"""
LINES = """\
# deb http://commented.example/debian bookworm main
deb http://mirror.example/security bookworm-security main
deb [arch=amd64 signed-by=/keys/debian.gpg] http://mirror.example/debian bookworm main non-free
"""
FOUND = Source(uri="http://mirror.example/debian", signed_by="/keys/debian.gpg")


def apt(place: Path, name: str, text: str) -> Path:
    path = place / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return place


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sources.list.d/debian.sources", STANZAS),
        ("sources.list", LINES),
        ("sources.list.d/debian.list", LINES),
    ],
)
def test_archive_of_the_own_suite_is_found(tmp_path: Path, name: str, text: str) -> None:
    assert archive(apt(tmp_path, name, text), "bookworm") == FOUND


def test_archive_of_another_suite_is_not_taken(tmp_path: Path) -> None:
    with pytest.raises(NoSourceError, match="trixie main"):
        archive(apt(tmp_path, "sources.list", LINES), "trixie")


def test_stanza_names_the_wanted_suite_and_the_keyring() -> None:
    assert FOUND.stanza("unstable").splitlines() == [
        "Types: deb",
        "URIs: http://mirror.example/debian",
        "Suites: unstable",
        "Components: main",
        "Signed-By: /keys/debian.gpg",
    ]
