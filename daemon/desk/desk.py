"""The daemon as its callers see it: who may do what, wishes written down, views returned.

Callers never touch a node: they write a wish and wake the loop.  The exceptions are what
administrators do to a node by hand, set-up and probe, which the loop has no part in, and
panic, which does not wait for it.
"""

from daemon.desk.jobs import JobDesk
from daemon.desk.nodes import NodeDesk
from daemon.desk.panic import PanicDesk


class Desk(JobDesk, NodeDesk, PanicDesk):
    """Answers the API."""

    __slots__ = ()
