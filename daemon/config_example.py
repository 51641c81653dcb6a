"""The configuration file with every key, its default and its reason, made of the models."""

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from daemon.config import Config, MockSection, PbsSection

_HEAD = """\
# The configuration of stopgap, with every key at its default.
#
# Units are in the names of the keys.  A key that is left out has its default; one that does
# not exist is an error.  "stopgap config check" tells everything that is wrong with a file,
# "stopgap config example" prints this one.
"""


def text() -> str:
    """Return a file that is usable as it stands and changes nothing."""
    lines = [_HEAD]
    for name, section in Config():
        lines += ["", *_comment(type(section).__doc__ or ""), f"[{name}]"]
        lines += _keys(section, "")
        if name == "batch":
            for kind in (PbsSection(kind="pbs"), MockSection(kind="mock")):
                lines += ["", f'# With kind = "{kind.kind}" these instead of bin_dir and conf:']
                lines += _keys(kind, "#", without={"kind", "poll_seconds", "timeout_seconds"})
    return "\n".join(lines) + "\n"


def _keys(
    section: BaseModel, mark: str, without: frozenset[str] | set[str] = frozenset()
) -> Iterator[str]:
    for key, field in type(section).model_fields.items():
        if key not in without:
            value = _value(getattr(section, key))
            yield from _comment(f"{field.description} Default: {value}")
            yield f"{mark}{key} = {value}"


def _comment(prose: str) -> list[str]:
    plain = " ".join(prose.split())
    return textwrap.wrap(plain, 95, initial_indent="# ", subsequent_indent="# ")


def _value(value: Any) -> str:
    # TOML's strings, numbers, booleans and arrays are JSON's.
    return json.dumps(str(value) if isinstance(value, Path) else value)
