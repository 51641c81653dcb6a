"""The machine's own package source, and other suites of the same archive.

No address is written down here: it is read from the machine's apt sources.
"""

from dataclasses import dataclass
from pathlib import Path

_OS_RELEASE = Path("/etc/os-release")


class NoSourceError(Exception):
    """The machine has no Debian archive among its apt sources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One Debian archive."""

    uri: str
    #: The path of the keyring that signs it; empty for apt's own trust.
    signed_by: str

    def stanza(self, suite: str) -> str:
        """Return an apt source for one suite of the archive."""
        lines = ["Types: deb", f"URIs: {self.uri}", f"Suites: {suite}", "Components: main"]
        if self.signed_by:
            lines.append(f"Signed-By: {self.signed_by}")
        return "\n".join(lines) + "\n"


def codename() -> str:
    """
    Return the suite that this machine runs.

    Raises:
        NoSourceError: it is not a Debian.
    """
    words = dict(line.split("=", 1) for line in _OS_RELEASE.read_text().splitlines() if "=" in line)
    if words.get("ID", "").strip('"') != "debian":
        raise NoSourceError("this machine is not a Debian")
    return words.get("VERSION_CODENAME", "").strip('"')


def archive(apt: Path = Path("/etc/apt"), suite: str | None = None) -> Source:
    """
    Return the archive that this machine installs its own suite from.

    Raises:
        NoSourceError: there is none.
    """
    suite = suite or codename()
    for path in sorted((apt / "sources.list.d").glob("*.sources")):
        for stanza in path.read_text().split("\n\n"):
            if source := _from_stanza(stanza, suite):
                return source
    for path in [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*.list"))]:
        for line in path.read_text().splitlines() if path.exists() else ():
            if source := _from_line(line, suite):
                return source
    raise NoSourceError(f"no apt source of this machine offers {suite} main")


def _from_stanza(stanza: str, suite: str) -> Source | None:
    lines = (line for line in stanza.splitlines() if not line.startswith(("#", " ")))
    pairs = (line.partition(":") for line in lines)
    fields = {key.strip().lower(): value.strip() for key, _, value in pairs}
    fits = suite in fields.get("suites", "").split() and "main" in fields.get("components", "")
    if not fits or "deb" not in fields.get("types", "").split() or not fields.get("uris"):
        return None
    keyring = fields.get("signed-by", "")
    return Source(uri=fields["uris"].split()[0], signed_by=keyring)


def _from_line(line: str, suite: str) -> Source | None:
    kind, _, rest = line.strip().partition(" ")
    rest = rest.strip()
    if kind != "deb":
        return None
    keyring = ""
    if rest.startswith("["):
        options, _, rest = rest[1:].partition("]")
        keyring = dict(o.split("=", 1) for o in options.split() if "=" in o).get("signed-by", "")
    words = rest.split()
    if len(words) < 3 or words[1] != suite or "main" not in words[2:]:
        return None
    return Source(uri=words[0], signed_by=keyring)
