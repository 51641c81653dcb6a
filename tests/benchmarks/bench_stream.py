"""What a move costs where nodes share no file system, beside the shared directory.

``python -m tests.benchmarks.bench_stream [MIB]`` moves a job of random memory between two nodes
of one bed: through the shared directory, and streamed as it is, packed, and held back.  The
stream's own speed is counted from what it adds to a resume.
"""

import sys
from collections.abc import Iterator
from statistics import median

from tests.benchmarks.bench_move import moving
from tests.contract.test_engine_docker import DockerBench
from tests.contract.test_engine_streamed import StreamedBench
from tests.testbed import Bed

#: MiB in a second, for the side that is held back.
BOUND = 64.0
_ROUNDS = 3


class _Packed(StreamedBench):
    packing = "zstd"


class _Bound(StreamedBench):
    bound = BOUND


_SIDES: dict[str, type[DockerBench]] = {
    "shared": DockerBench,
    "streamed": StreamedBench,
    "streamed, zstd": _Packed,
    f"streamed, {BOUND:g} MiB/s": _Bound,
}


def run(mib: int) -> dict[str, dict[str, float]]:
    """Measure all sides on a bed of its own; seconds, and MiB in a second."""
    with Bed.start(nodes=2) as bed:
        found = {name: _measured(side(bed), mib) for name, side in _SIDES.items()}
    shared = found["shared"]["resume"]
    for name, figures in found.items():
        if name != "shared":
            figures["mib_per_second"] = mib / max(0.001, figures["resume"] - shared)
    return found


def _measured(bench: DockerBench, mib: int) -> dict[str, float]:
    bench.set_up()
    with moving(bench, mib) as mover:
        rounds = [mover.round() for _ in range(_ROUNDS)]
    bench.access.close()
    return {name: median(figures[name] for figures in rounds) for name in rounds[0]}


def table(mib: int, results: dict[str, dict[str, float]]) -> Iterator[str]:
    """Yield the figures as lines for people."""
    yield f"{f'{mib} MiB':<22}{'checkpoint':>12}{'resume':>10}{'MiB/s':>9}"
    for name, figures in results.items():
        speed = figures.get("mib_per_second")
        told = "-" if speed is None else f"{speed:.0f}"
        yield f"{name:<22}{figures['checkpoint']:>11.2f}s{figures['resume']:>9.2f}s{told:>9}"


def main() -> None:
    """Print the figures."""
    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 512
    for line in table(mib, run(mib)):
        print(line)


if __name__ == "__main__":
    main()
