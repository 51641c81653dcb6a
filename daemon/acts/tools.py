"""What every hand needs, in one value."""

from dataclasses import dataclass, field
from datetime import timedelta

from daemon.acts.output import OutputWriter
from daemon.clock import Clock
from daemon.core.policy import Policy
from daemon.core.types import Phase, SegmentRef
from daemon.observer import Observer
from daemon.store import Store
from daemon.store.spool import Spool
from migration.base import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The store, the engines, and how long things may take."""

    store: Store
    spool: Spool
    engine: Engine
    clock: Clock
    observer: Observer
    output: OutputWriter
    policy: Policy = field(default_factory=Policy)
    #: The longest time for one checkpoint, however late the claim's deadline is.
    checkpoint_limit: timedelta = timedelta(seconds=600)
    #: Between SIGTERM and SIGKILL for jobs that save themselves.
    signal_grace: timedelta = timedelta(seconds=30)
    #: Between two tries to checkpoint a job whose node is wanted.
    retry: timedelta = timedelta(seconds=2)
    #: A node that failed an order is left alone for this long, then probed.
    distrust: timedelta = timedelta(seconds=10)
    #: A canary that failed is run again after this time.
    probe_retry: timedelta = timedelta(seconds=300)


def runs(tools: Tools, ref: SegmentRef) -> bool:
    """Ask the engine whether the segment's container has not ended."""
    return any(
        (view.job, view.epoch) == (ref.job, ref.epoch) and view.phase is not Phase.EXITED
        for view in tools.engine.survey(ref.node)
    )
