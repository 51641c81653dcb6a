"""Captures what the adapter's own commands print, from the Slurm of a bed.

Run as ``python -m tests.data.refresh_slurm``; the outputs are kept in the folder of
the Slurm version that is installed.
"""

import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from adapters import commands
from adapters.slurm import parse
from daemon.core.types import ClaimSource, Cluster, NodeName
from tests.contract.slurm_bench import SlurmBench
from tests.testbed import Bed

_HERE = Path(__file__).parent
_FILES = {"scontrol_show_node": parse.NODES, "squeue": parse.JOBS}
_MORE = {"reserved": {"scontrol_show_reservation": parse.RESERVATIONS}}
_ENV = {"SLURM_TIME_FORMAT": "%s"}
_SECONDS = 30


def main() -> None:
    """Bring about each situation and keep what is printed in it."""
    with Bed.start() as bed:
        bench = SlurmBench(bed)
        bench.reset()
        bench.adapter.look()
        top = _HERE / f"slurm-{bench.adapter.version}" / "look"
        shutil.rmtree(top, ignore_errors=True)
        for name, situation in SITUATIONS.items():
            with situation(bench):
                for file, argv in (_FILES | _MORE.get(name, {})).items():
                    _keep(bench, top / name / file, argv)
            bench.reset()
            print(name)
        for file, argv in {"config": parse.CONFIG, "version": parse.VERSION}.items():
            _keep(bench, top / "idle" / file, argv)


def _keep(bench: SlurmBench, place: Path, argv: Sequence[str]) -> None:
    conf = {"SLURM_CONF": str(bench.bed.layout.slurm_conf)}
    answer = commands.run(argv, timeout_seconds=_SECONDS, env=_ENV | conf)
    place.parent.mkdir(parents=True, exist_ok=True)
    setting = " ".join(f"{key}={value}" for key, value in _ENV.items())
    place.with_suffix(".cmd").write_text(f"{setting} {shlex.join(argv)}\n")
    place.with_suffix(".out").write_bytes(answer.out.encode("utf-8", "surrogateescape"))
    if answer.err:
        place.with_suffix(".err").write_bytes(answer.err.encode("utf-8", "surrogateescape"))
    if answer.code:
        place.with_suffix(".rc").write_text(f"{answer.code}\n")


def _shows(node: NodeName, word: str) -> Callable[[Cluster], bool]:
    return lambda cluster: word in cluster.nodes[node].words.split("+")


def _claimed(node: NodeName, source: ClaimSource) -> Callable[[Cluster], bool]:
    return lambda cluster: source in {claim.source for claim in cluster.nodes[node].claims}


@contextmanager
def _idle(_: SlurmBench) -> Iterator[None]:
    yield


@contextmanager
def _allocated(bench: SlurmBench) -> Iterator[None]:
    first, second, third = bench.nodes[:3]
    bench.submit(first, third)
    bench.until(_shows(third, "ALLOCATED"))
    argv = ["sbatch", "--partition=shared", "--output=/dev/null", f"--nodelist={second}"]
    bench.bed.run([*argv, "--wrap=sleep 3600"])
    bench.until(_shows(second, "MIXED"))
    yield


@contextmanager
def _planned(bench: SlurmBench) -> Iterator[None]:
    busy, idle = bench.nodes[:2]
    bench.submit(busy)
    bench.until(_shows(busy, "ALLOCATED"))
    bench.submit(busy, idle)
    bench.until(_shows(idle, "PLANNED"))
    yield


@contextmanager
def _held(bench: SlurmBench) -> Iterator[None]:
    with _planned(bench):
        for job in bench.bed.run(["squeue", "-h", "-tPD", "-o%A"]).stdout.split():
            bench.hold(int(job))
        bench.until(lambda cluster: not _shows(bench.nodes[1], "PLANNED")(cluster))
        yield


@contextmanager
def _array(bench: SlurmBench) -> Iterator[None]:
    argv = ["sbatch", "--partition=shared", "--output=/dev/null", "--array=0-99%3"]
    bench.bed.run([*argv, "--wrap=sleep 3600"])
    bench.until(lambda cluster: any("MIXED" in node.words for node in cluster.nodes.values()))
    yield


@contextmanager
def _drained(bench: SlurmBench) -> Iterator[None]:
    first, second, third = bench.nodes[:3]
    bench.submit(first)
    bench.until(_shows(first, "ALLOCATED"))
    bench.drain(first, reason='a|b "c" größe \\')
    bench.drain(second, reason=f"x\nNodeName={third} CPUAlloc=0 State=IDLE")
    bench.until(_shows(second, "DRAIN"))
    yield


@contextmanager
def _reserved(bench: SlurmBench) -> Iterator[None]:
    bench.reserve(bench.nodes[0], maintenance=False)
    bench.reserve(bench.nodes[1], maintenance=True)
    bench.until(_shows(bench.nodes[1], "MAINTENANCE"))
    bench.until(_shows(bench.nodes[0], "RESERVED"))
    yield


@contextmanager
def _suspended(bench: SlurmBench) -> Iterator[None]:
    job = bench.submit(bench.nodes[0])
    bench.until(_shows(bench.nodes[0], "ALLOCATED"))
    bench.suspend(job)
    # Called IDLE by 22.05, MIXED by 26.05.
    bench.until(lambda cluster: not _shows(bench.nodes[0], "ALLOCATED")(cluster))
    yield


@contextmanager
def _names(bench: SlurmBench) -> Iterator[None]:
    for name in ("a|b", "x\n99|RUNNING|1|n4|(null)", "é" * 100, "", "--help", "\x1b[31m"):
        bench.submit(bench.nodes[0], name=name)
    bench.until(_shows(bench.nodes[0], "ALLOCATED"))
    yield


@contextmanager
def _down(bench: SlurmBench) -> Iterator[None]:
    bench.cut()
    yield


SITUATIONS = {
    "idle": _idle,
    "allocated": _allocated,
    "planned": _planned,
    "held": _held,
    "array": _array,
    "drained": _drained,
    "reserved": _reserved,
    "suspended": _suspended,
    "names": _names,
    "controller-down": _down,
}


if __name__ == "__main__":
    main()
