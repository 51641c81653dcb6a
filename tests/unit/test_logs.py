"""Events are lines that machines can read."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from daemon import logs


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


def test_an_event_is_one_json_object() -> None:
    """Fields are keys, and the time is UTC in ISO form."""
    out = io.StringIO()
    logs.set_up("info", out)
    structlog.get_logger().info("job.evicted", job=7, node="n1")
    structlog.get_logger().debug("too.small")

    (line,) = out.getvalue().splitlines()
    event = json.loads(line)
    assert event.pop("timestamp").endswith("Z")
    assert {"event": "job.evicted", "job": 7, "node": "n1", "level": "info"} == event


def test_libraries_write_the_same_lines() -> None:
    """A warning of a library is an event too; its chatter is not."""
    out = io.StringIO()
    logs.set_up("debug", out)
    logging.getLogger("apscheduler").warning("late by %d s", 3)
    logging.getLogger("apscheduler").info("added job")

    (line,) = out.getvalue().splitlines()
    assert {"event": "late by 3 s", "logger": "apscheduler", "level": "warning"}.items() <= (
        json.loads(line).items()
    )


def test_a_failure_stays_on_its_line() -> None:
    """A traceback is a field, not forty lines."""
    out = io.StringIO()
    logs.set_up("info", out)
    try:
        int("lost")
    except ValueError:
        structlog.get_logger().exception("tick.failed")

    (line,) = out.getvalue().splitlines()
    assert "ValueError: invalid" in json.loads(line)["exception"]


def test_a_person_gets_text() -> None:
    """On a terminal nobody reads JSON."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    logs.set_up("info", out)
    structlog.get_logger().info("job.evicted", job=7)

    assert "job.evicted" in out.getvalue()
    assert not out.getvalue().startswith("{")
