"""The documents say what the code does, where a program can tell."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import get_args

import pytest

from daemon.config import Config, PbsSection
from daemon.core.actions import Action
from daemon.core.lifecycle import TRANSITIONS

_ROOT = Path(__file__).parents[2]
_PAGES = sorted([*_ROOT.glob("*.md"), *_ROOT.glob("docs/**/*.md")])
_KEY = r"`((?:daemon|batch|engine|nodes|checkpoints|jobs|policy)\.[a-z]+_[a-z_]+)`"
_LEVELS = {"info", "warning", "error", "exception"}


def test_the_architecture_has_the_state_machine() -> None:
    """
    The table in the document is the table in the code.
    """
    text = (_ROOT / "docs/architecture.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([\w, ]+) \| (\w+) \|", text, re.MULTILINE)
    written = {(state, event, to) for event, states, to in rows for state in states.split(", ")}

    assert {(s.value, e.value, to.value) for (s, e), to in TRANSITIONS.items()} == written


def test_the_operations_explain_every_event() -> None:
    """
    No event in the log leaves an administrator alone.
    """
    text = (_ROOT / "docs/operations.md").read_text()
    actions = {f"action.{kind.__name__.lower()}" for kind in get_args(Action)}

    assert set() == {event for event in actions | _events() if f"`{event}`" not in text}


@cache
def _events() -> frozenset[str]:
    """Return the name of every event that is logged in plain words."""
    return frozenset(_logged())


def _logged() -> Iterator[str]:
    for path in chain.from_iterable(
        (_ROOT / folder).rglob("*.py") for folder in ("daemon", "adapters", "migration")
    ):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            logged = isinstance(node.func.value, ast.Name) and node.func.value.id == "_log"
            first = node.args[0] if node.args else None
            if logged and node.func.attr in _LEVELS and isinstance(first, ast.Constant):
                yield str(first.value)


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(_ROOT)))
def test_what_a_page_names_is_there(page: Path) -> None:
    """
    Links lead somewhere; keys of the configuration and targets of make exist.
    """
    text = page.read_text()
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text)
    targets = re.findall(r"`make ([a-z-]+)`", text)
    keys = set(re.findall(_KEY, text)) - _events()
    makefile = (_ROOT / "Makefile").read_text()

    assert [] == [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert set() == {key for key in keys if not _is_there(*key.split("."))}
    assert [] == [target for target in targets if f"\n{target}:" not in makefile]


def _is_there(section: str, key: str) -> bool:
    """Tell whether a key of the configuration exists, or a module of that name."""
    sections = [getattr(Config(), section), *([PbsSection(kind="pbs")] * (section == "batch"))]
    known = any(hasattr(each, key) for each in sections)
    return known or (_ROOT / section / f"{key}.py").exists()
