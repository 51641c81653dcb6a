"""How fast whole workloads are replayed, with and without a filler.

    STOPGAP_TRACES=FOLDER python -m tests.benchmarks.bench_sim [--json] [TRACE...]

The budget is 10,000 priority jobs per CPU second with the filler on KTH-SP2, SDSC-DS in a
minute, and 500 MiB of memory.  Each trace and policy runs in a process of its own.
"""

import json
import os
import resource
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from daemon.sim.rivals import Scheme
from daemon.sim.simulate import Plan, simulate
from daemon.sim.traces import load

TRACES = (
    "KTH-SP2-1996-2.1-cln.swf.gz",
    "SDSC-SP2-1998-4.2-cln.swf.gz",
    "SDSC-DS-2004-2.1-cln.swf.gz",
)
ROUNDS = 3


def measure(path: Path, scheme: Scheme) -> dict[str, object]:
    """Return the best of a few replays, and the most memory that the process had."""
    trace = load(path)
    found = [simulate(trace, Plan(scheme=scheme))[1] for _ in range(ROUNDS)]
    seconds = min(each["cpu_seconds"] for each in found)
    return {
        "trace": path.name,
        "policy": scheme.value,
        "jobs": found[0]["jobs"],
        "cpu_seconds": round(seconds, 2),
        "jobs_per_cpu_second": round(found[0]["jobs"] / seconds),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "evictions": found[0]["evictions"],
    }


def run(folder: Path, names: tuple[str, ...] = TRACES) -> list[dict[str, object]]:
    """Measure every trace, one after the other."""
    rows = []
    for name in names:
        for scheme in (Scheme.NONE, Scheme.STOPGAP):
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                rows.append(pool.submit(measure, folder / name, scheme).result())
    return rows


def main() -> None:
    """Measure, print a table or JSON."""
    folder = os.environ.get("STOPGAP_TRACES", "")
    if not folder:
        raise SystemExit("STOPGAP_TRACES does not name a folder of workloads")
    names = tuple(word for word in sys.argv[1:] if not word.startswith("--")) or TRACES
    rows = run(Path(folder), names)
    if "--json" in sys.argv:
        print(json.dumps({"simulator": rows}))
        return
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
