"""A whole node at once, and a checkpoint that leaves the job running.

Eight jobs are checkpointed side by side, as on a claim, from the first call to the last empty
cgroup; in the same run the disk writes as many bytes in as many files, each synced.  A kept
checkpoint freezes its job; how long is the engine's own word.
"""

import os
import secrets
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from daemon.core.types import JobId
from tests.benchmarks.bench_move import Mover
from tests.contract.test_engine_docker import DockerBench

JOBS = 8
JOB_MIB = 256
KEPT_MIB = (64, 512, 2048)
_PIECE = os.urandom(1 << 20)


def write_files(folder: Path, mib: int) -> float:
    """Write files side by side, each synced at its end; return the seconds."""

    def write(number: int) -> None:
        with (folder / f"raw-{number}").open("wb", buffering=0) as file:
            for _ in range(mib):
                file.write(_PIECE)
            os.fsync(file.fileno())

    began = time.monotonic()
    with ThreadPoolExecutor(JOBS) as pool:
        list(pool.map(write, range(JOBS)))
    seconds = time.monotonic() - began
    for number in range(JOBS):
        (folder / f"raw-{number}").unlink()
    return seconds


def evict_all(movers: list[Mover]) -> tuple[float, int]:
    """Checkpoint every job at once; return the seconds, and the bytes that were written."""
    began = time.monotonic()
    with ThreadPoolExecutor(len(movers)) as pool:
        saved = list(pool.map(Mover.evict, movers))
    return time.monotonic() - began, sum(each.checkpoint.size_bytes for each in saved)


@contextmanager
def crowd(bench: DockerBench, count: int, mib: int) -> Iterator[list[Mover]]:
    """Run so many jobs on one node."""
    first = secrets.randbelow(1_000_000) + 1
    movers = [Mover(bench, mib, JobId(first + number)) for number in range(count)]
    for mover in movers:
        mover.start()
    yield movers
    for mover in movers:
        mover.end()


def whole_node(bench: DockerBench, folder: Path, rounds: int) -> dict[str, Any]:
    """Compare the rate of an eviction with that of the disk."""
    ours: list[float] = []
    disk: list[float] = []
    for _ in range(rounds):
        with crowd(bench, JOBS, JOB_MIB) as movers:
            disk.append(JOBS * JOB_MIB / write_files(folder, JOB_MIB))
            seconds, written = evict_all(movers)
            ours.append(written / (1 << 20) / seconds)
    return {
        "jobs": JOBS,
        "mib": JOB_MIB,
        "mib_per_second": median(ours),
        "disk_mib_per_second": median(disk),
        "share_of_disk": median(ours) / median(disk),
        "samples": {"ours": ours, "disk": disk},
    }


def kept(bench: DockerBench, mib: int, rounds: int) -> dict[str, Any]:
    """Measure how long a checkpoint holds up a job that goes on."""
    with crowd(bench, 1, mib) as (mover,):
        froze = [mover.keep().freeze_seconds for _ in range(rounds)]
    return {"mib": mib, "freeze_seconds": median(froze), "samples": froze}


def run(rounds: int = 3) -> dict[str, Any]:
    """Measure on a bed of its own."""
    with DockerBench.started() as bench:
        return {
            "node": whole_node(bench, bench.checkpoints, rounds),
            "kept": [kept(bench, mib, rounds) for mib in KEPT_MIB],
        }


def table(result: dict[str, Any]) -> Iterator[str]:
    """Yield the figures as lines for people."""
    node = result["node"]
    yield (
        f"{node['jobs']} jobs of {node['mib']} MiB at once: {node['mib_per_second']:.0f} MiB/s, "
        f"{node['share_of_disk']:.2f} of the disk's {node['disk_mib_per_second']:.0f} MiB/s"
    )
    for one in result["kept"]:
        yield f"frozen by a kept checkpoint of {one['mib']} MiB: {one['freeze_seconds']:.3f} s"


if __name__ == "__main__":
    for line in table(run()):
        print(line, file=sys.stderr)
