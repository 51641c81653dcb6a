"""Which settings make which batch adapter.

The settings are plain values defined by the adapters; whoever reads a
configuration builds them, and never names an adapter's class.
"""

from adapters.mock_slurm.adapter import MockAdapter, MockSettings, build
from adapters.pbs.adapter import PbsAdapter, PbsSettings
from adapters.slurm.adapter import SlurmAdapter, SlurmSettings
from adapters.wrappers import Doubting, ExaminedAdapter
from daemon.clock import Clock

__all__ = ["MockSettings", "PbsSettings", "Settings", "SlurmSettings", "create"]

Settings = SlurmSettings | PbsSettings | MockSettings


def create(settings: Settings, clock: Clock) -> ExaminedAdapter:
    """Return the adapter for these settings; nothing is asked or started yet."""
    match settings:
        case SlurmSettings():
            return Doubting(SlurmAdapter(settings, clock))
        case PbsSettings():
            return Doubting(PbsAdapter(settings, clock))
        case MockSettings():
            return MockAdapter(build(settings, clock), clock)
