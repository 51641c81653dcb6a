"""What PBS says of itself: its version, its server, its hooks, a MoM's configuration.  Pure."""

import re
from collections.abc import Mapping

from adapters.base import UnparsableError
from adapters.pbs import values

VERSION = ("pbsnodes", "--version")
SERVER = ("qstat", "-B", "-f", "-F", "dsv")
HOOKS = ("qmgr", "-c", "list hook")


def parse_version(text: str) -> str:
    """
    Read the answer to ``VERSION``, stderr included, such as ``pbs_version = 23.06.06``.

    Raises:
        UnparsableError: it is Torque, or there is no version in it.
    """
    command = " ".join(VERSION)
    found = re.search(r"^pbs_version = ([0-9]+(?:\.[0-9]+)+\S*)\s*$", text, re.MULTILINE)
    if found is not None:
        return found[1]
    torque = re.search(r"^Version: +(\S+)\s*$", text, re.MULTILINE | re.IGNORECASE)
    if torque is not None or "torque" in text.casefold():
        version = f" {torque[1]}" if torque is not None else ""
        reason = (
            f"this is Torque{version}, another batch system with commands of the same names; "
            "stopgap speaks OpenPBS 20 and newer and PBS Pro"
        )
        raise UnparsableError(command, reason)
    raise UnparsableError(command, "there is no pbs_version", sample=text)


def parse_server(text: str) -> Mapping[str, str]:
    """Read the answer to ``SERVER``: the server's attributes."""
    first = text.split("\n", 1)[0]
    return {key: value for key, _, value in map(values.pair, values.fields(first))}


def parse_hooks(text: str) -> Mapping[str, Mapping[str, str]]:
    """Read the answer to ``HOOKS``: each hook's attributes by its name."""
    found: dict[str, dict[str, str]] = {}
    hook: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("Hook "):
            hook = found.setdefault(line.removeprefix("Hook ").strip(), {})
        elif " = " in line:
            key, _, value = line.strip().partition(" = ")
            hook[key] = value
    return found


def parse_mom(text: str) -> Mapping[str, str]:
    """Read a MoM's configuration: what each line with ``$`` says."""
    lines = (line.split(None, 1) for line in text.splitlines() if line.startswith("$"))
    return {words[0].removeprefix("$"): words[1].strip() for words in lines if len(words) > 1}
