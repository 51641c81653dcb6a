"""How events are written: one line each, JSON unless a person watches.

Called once, by whoever owns the process.  Everybody else asks ``structlog.get_logger()``.
"""

import logging
import sys
from typing import TextIO

import structlog
from structlog.typing import Processor


def set_up(level: str = "info", stream: TextIO | None = None) -> None:
    """Send the events of this process, and the warnings of its libraries, to one stream."""
    out = stream if stream is not None else sys.stderr
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    last: list[Processor] = (
        [structlog.dev.ConsoleRenderer()]
        if out.isatty()
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(out),
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    # Libraries narrate at info; what they warn of is an event of ours.
    root.setLevel(logging.WARNING)
