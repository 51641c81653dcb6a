"""Packages of another suite of the machine's own archive, unpacked beside the system.

Nothing of the system is touched, no script of a package is run, and what they depend on comes
along.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.testbed import debian


class UnpackingError(Exception):
    """Packages could not be had."""


def unpack(suite: str, packages: Sequence[str], work: Path) -> Path:
    """
    Unpack packages with all that they need below an empty folder, and return their root.

    Raises:
        UnpackingError: they could not be had.
    """
    root = work / "root"
    # The links from /bin and /lib to /usr come first, or folders would stand in their place.
    for archive in sorted(_download(suite, packages, work), key=_before):
        _run("dpkg-deb", "-x", str(archive), str(root))
    return root


def _before(archive: Path) -> tuple[bool, str]:
    return (not archive.name.startswith("base-files_"), archive.name)


def _download(suite: str, packages: Sequence[str], work: Path) -> list[Path]:
    parts, state, cache = work / "sources", work / "state", work / "cache"
    for folder in (parts, state / "lists/partial", cache / "archives/partial"):
        folder.mkdir(parents=True)
    # apt fetches as a user of its own, who must get in.
    work.chmod(0o755)
    (work / "status").touch()
    try:
        (parts / f"{suite}.sources").write_text(debian.archive().stanza(suite))
    except debian.NoSourceError as exc:
        raise UnpackingError(str(exc)) from exc
    options = {
        "Dir::State": state,
        "Dir::State::status": work / "status",
        "Dir::Cache": cache,
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": parts,
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "APT::Sandbox::User": "root",
    }
    apt = ["apt-get", "-qq", *(f"-o{key}={value}" for key, value in options.items())]
    _run(*apt, "update")
    _run(*apt, "-y", "--download-only", "--no-install-recommends", "install", *packages)
    return list((cache / "archives").glob("*.deb"))


def _run(*argv: str) -> None:
    answer = subprocess.run(
        argv, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}, check=False
    )
    if answer.returncode:
        words = (answer.stderr or answer.stdout).strip()
        raise UnpackingError(f"{argv[0]} exited with {answer.returncode}: {words}")
