"""What it costs to get a job out of the way and to have it go on, side by side in one run.

Ours is the engine that the daemon uses, from its decision to the empty cgroup, and from its
decision to the running job in a new container on another node.  Beside it the same process
under bare ``runc checkpoint`` with fsync of what it wrote and ``runc restore``, and under
Docker's own ``checkpoint create`` and ``start --checkpoint`` with plain runc.
"""

import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from daemon.core.types import Epoch, Generation, JobId, JobSpec, NodeName, Owner, SegmentRef
from migration.base import Kept, Saved, StaleOrderError, StartOrder
from tests.benchmarks.bench_shim import PROGRAM, bare
from tests.contract.test_engine_docker import DockerBench
from tests.integration.shim.kit import ShimNode
from tests.testbed import Bed, wait_until

IMAGE = "stopgap/python:1"
#: Beyond it Docker's own way takes many minutes, and nothing more is learnt.
DOCKERS_LIMIT_MIB = 2048
_READY_SECONDS = 120.0
Samples = dict[str, list[float]]


@dataclass
class Mover:
    """One job that goes to and fro between two nodes through the daemon's engine."""

    bench: DockerBench
    mib: int
    job: JobId
    epoch: int = 0
    ref: SegmentRef = field(init=False)

    def start(self) -> None:
        """Start the job and wait until its memory is filled."""
        self._place(self.bench.here, None)
        wait_until(
            lambda: b"ready" in b"".join(self.bench.engine.logs(self.ref)),
            _READY_SECONDS,
            "the job's memory",
        )

    def round(self) -> dict[str, float]:
        """Checkpoint, then resume on the other node."""
        old = self.ref
        began = time.monotonic()
        saved = self.evict()
        vacated = time.monotonic() - began
        there = self.bench.there if old.node == self.bench.here else self.bench.here
        resumed = self._place(there, saved.checkpoint.generation)
        self.bench.engine.remove(old)
        self.bench.engine.forget(self.job, keep=saved.checkpoint.generation)
        return {"checkpoint": vacated, "resume": resumed}

    def evict(self) -> Saved:
        """Checkpoint it and have it end."""
        return self.bench.engine.checkpoint(self.ref, deadline_seconds=600)

    def keep(self) -> Kept:
        """Checkpoint it and let it go on."""
        return self.bench.engine.save(self.ref, deadline_seconds=600)

    def end(self) -> None:
        """Leave nothing."""
        self.bench.engine.kill(self.ref)
        self.bench.engine.remove(self.ref)
        self.bench.engine.forget(self.job)

    def _place(self, node: NodeName, generation: Generation | None) -> float:
        self.epoch += 1
        self.ref = SegmentRef(job=self.job, epoch=Epoch(self.epoch), node=node)
        spec = JobSpec(
            name="bench",
            owner=Owner(uid=0, gid=0),
            image=IMAGE,
            command=("python3", "-c", PROGRAM.format(mib=self.mib)),
            cpus=2,
            memory_mib=self.mib + 256,
        )
        order = StartOrder(
            ref=self.ref,
            spec=spec,
            env={},
            image_digest=None,
            seen=self.bench.clock.now(),
            generation=generation,
        )
        began = time.monotonic()
        try:
            self.bench.engine.place(order)
        except StaleOrderError:
            # It took long to come; now it is there.
            self.bench.engine.place(replace(order, seen=self.bench.clock.now()))
        return time.monotonic() - began


def docker_own(bed: Bed, node: str, mib: int) -> dict[str, float]:
    """Move a job the way Docker does it by itself."""
    name = f"own-{secrets.token_hex(4)}"
    program = PROGRAM.format(mib=mib)
    docker = ["docker", "--host", bed.engines[node]]
    options = [
        "--detach",
        "--name",
        name,
        "--network",
        "none",
        "--security-opt",
        "seccomp=unconfined",
    ]
    bed.docker(node, "run", *options, IMAGE, "python3", "-c", program)
    try:
        wait_until(
            lambda: "ready" in bed.docker(node, "logs", name), _READY_SECONDS, "Docker's own job"
        )
        began = time.monotonic()
        bed.run([*docker, "checkpoint", "create", name, "c1"], seconds=600)
        saved = time.monotonic()
        bed.docker(node, "wait", name)
        resumed = time.monotonic()
        bed.run([*docker, "start", "--checkpoint", "c1", name], seconds=600)
        done = time.monotonic()
    finally:
        bed.docker(node, "rm", "--force", name, check=False)
    return {"docker_checkpoint": saved - began, "docker_resume": done - resumed}


def compare(bed: Bed, bench: DockerBench, mib: int, rounds: int) -> dict[str, Any]:
    """
    Alternate the sides, so that the machine's moods hit them equally.

    The first round counts for neither: memory that the machine has never used is slow.
    """
    samples: Samples = {}
    command = ["python3", "-c", PROGRAM.format(mib=mib)]
    with moving(bench, mib) as mover, bare(bed, ShimNode(bed, "n3"), command) as plain:
        for number in range(1 + rounds):
            for name, seconds in {**plain(), **mover.round()}.items():
                samples.setdefault(name, []).extend([seconds] if number else [])
    if mib <= DOCKERS_LIMIT_MIB:
        for name, seconds in docker_own(bed, "n3", mib).items():
            samples.setdefault(name, []).append(seconds)
    middle = {name: median(found) for name, found in samples.items()}
    ratios = {
        "checkpoint_to_bare": ("checkpoint", "bare_checkpoint"),
        "resume_to_bare": ("resume", "bare_restore"),
        "docker_checkpoint_to_ours": ("docker_checkpoint", "checkpoint"),
        "docker_resume_to_ours": ("docker_resume", "resume"),
    }
    known = {n: middle[a] / middle[b] for n, (a, b) in ratios.items() if a in middle}
    return {"mib": mib, "samples": samples, "median": middle, **known}


@contextmanager
def moving(bench: DockerBench, mib: int) -> Iterator[Mover]:
    mover = Mover(bench, mib, JobId(secrets.randbelow(1_000_000) + 1))
    mover.start()
    yield mover
    mover.end()


def run(sizes: list[int], rounds: int) -> list[dict[str, Any]]:
    """Measure on a bed of its own."""
    with Bed.start(nodes=3) as bed:
        bench = DockerBench(bed)
        bench.set_up()
        ShimNode(bed, "n3").install()
        return [compare(bed, bench, mib, rounds) for mib in sizes]


def table(results: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the figures as lines for people."""
    yield f"{'':>28}" + "".join(f"{result['mib']:>9} MiB" for result in results)
    for name in results[0]["median"]:
        yield f"{name:>28}" + "".join(_cell(r["median"].get(name), 3, "s") for r in results)
    for name in [key for key in results[0] if "_to_" in key]:
        yield f"{name:>28}" + "".join(_cell(result.get(name), 2, "x") for result in results)


def _cell(figure: float | None, digits: int, unit: str) -> str:
    return f"{'-':>13}" if figure is None else f"{figure:>11.{digits}f} {unit}"


def main() -> None:
    """Measure the sizes given, 512 and 2048 MiB otherwise."""
    sizes = [int(word) for word in sys.argv[1:]] or [512, 2048]
    for line in table(run(sizes, rounds=5)):
        print(line)


if __name__ == "__main__":
    main()
