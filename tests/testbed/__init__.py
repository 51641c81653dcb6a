"""The bed: private instances of the real parts (Slurm, Docker, CRIU) under one folder."""

from tests.testbed.bed import Bed, BedError
from tests.testbed.parts import PartError
from tests.testbed.requirements import missing
from tests.testbed.waiting import wait_until

__all__ = ["Bed", "BedError", "PartError", "missing", "wait_until"]
