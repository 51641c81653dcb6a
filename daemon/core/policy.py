"""The knobs of every decision, with defaults and reasons."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How stopgap decides.  The defaults suit a cluster with a 15 s poll."""

    #: Look and decide, and start nothing.
    shadow: bool = False
    #: A claim without a deadline of its own must be met in this time; the batch
    #: system's prolog time-out is the upper bound.
    vacate: timedelta = timedelta(seconds=60)
    #: What panic leaves for checkpoints: the rest of its five seconds is for killing what was
    #: not saved, and for the proof.
    panic_save: timedelta = timedelta(seconds=2)
    #: A claim expected within this time keeps a node from being filled: a shorter
    #: segment would not be worth its start and its checkpoint.
    horizon: timedelta = timedelta(seconds=120)
    #: A claim with a time is met this long before it.
    ahead: timedelta = timedelta(seconds=15)
    #: An older picture of the batch system starts nothing.
    stale: timedelta = timedelta(seconds=60)
    #: What runs on a node of which nothing is known any more is kept this long.
    unknown_grace: timedelta = timedelta(seconds=300)
    #: An engine that is silent this long makes its jobs UNREACHABLE.
    silence: timedelta = timedelta(seconds=30)
    #: Left free on each node for the site's own services.
    reserve_cpus: int = 0
    reserve_memory_mib: int = 512
    #: Idle nodes that get no job of ours: a priority job starts there at once.
    leave_idle: int = 0
    #: When nodes are filled, in minutes of the day on the site's clocks, each from and until;
    #: one that ends before it begins goes over midnight.  None is always.
    hours: tuple[tuple[int, int], ...] = ()
    #: More jobs than this on one node make an eviction slow.
    max_jobs_per_node: int = 64
    #: More at once would only wait inside the daemon: an engine needs about a second for
    #: one, and the next tick is never far.
    starts_per_tick: int = 256
    #: Canaries under way at the same time: each takes a node for some seconds.
    probes_at_once: int = 4
    #: Faults in a row after which a job is held instead of tried again.
    max_faults: int = 8
    #: The first pause after a fault; it doubles with each further one.
    fault_pause: timedelta = timedelta(seconds=2)
    fault_pause_max: timedelta = timedelta(seconds=300)
    #: A node that refused this many different jobs in a row is at fault, and not the jobs.
    refusals: int = 2
    #: How long such a node is left alone; it doubles each time.
    refusal_pause: timedelta = timedelta(seconds=60)
    refusal_pause_max: timedelta = timedelta(seconds=3600)
    #: A job is saved for trial this long after its first start: soon enough to tell its
    #: submitter, late enough for it to have opened what it will hold.
    trial: timedelta = timedelta(seconds=30)
    #: Bounds of the time between two periodic checkpoints.
    checkpoint_min: timedelta = timedelta(seconds=300)
    checkpoint_max: timedelta = timedelta(hours=4)
    #: Running time of jobs for each loss of a segment, as long as little was observed.
    node_mtbf: timedelta = timedelta(hours=720)
    #: More periodic checkpoints at once would be in the way of evictions.
    saves_at_once: int = 2
    #: What all generations, and those of one user, may take; None is no limit.
    max_stored: int | None = None
    max_stored_by_user: int | None = None
    #: An illegal instruction this soon after a resume is a fault of the move.
    sigill: timedelta = timedelta(seconds=60)

    def node_pause_after(self, times: int) -> timedelta:
        """Return how long a node is left alone that was found at fault so often in a row."""
        doubled = self.refusal_pause * (1 << max(0, min(times - 1, 20)))
        return min(doubled, self.refusal_pause_max)

    def pause_after(self, faults: int) -> timedelta:
        """Return how long a job is left alone after so many faults in a row."""
        doubled = self.fault_pause * (1 << max(0, min(faults - 1, 20)))
        return min(doubled, self.fault_pause_max)
