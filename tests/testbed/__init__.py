"""The bed: private instances of the real parts (Slurm, Docker, CRIU) under one folder."""

from tests.testbed.bed import Bed, BedError
from tests.testbed.requirements import missing

__all__ = ["Bed", "BedError", "missing"]
