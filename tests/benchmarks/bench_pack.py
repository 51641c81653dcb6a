"""What compression saves and costs: bytes in the root, seconds of a checkpoint and of a resume.

``python -m tests.benchmarks.bench_pack`` prints a table on stderr and one JSON object on stdout.
A checkpoint is measured from the frozen job to the empty cgroup, a resume from the shim's
start to the stopped, restored job.
"""

import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from tests.integration.shim.kit import ShimNode
from tests.testbed import Bed, wait_until

_MIB = 512
_ROUNDS = 3
#: A table of numbers as text is a sixth of itself when it is compressed; nothing is left off noise.
_CONTENT = {
    "text": "b''.join(b'%015d ' % (n * 7919) for n in range({mib} << 16))",
    "random": "[os.urandom(1 << 20) for _ in range({mib})]",
}
_PROGRAM = """
import os, time
keep = {content}
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""

Result = dict[str, Any]


def run(mib: int = _MIB, rounds: int = _ROUNDS) -> list[Result]:
    """Move a job of each kind to and fro, plain and compressed, and return what it took."""
    with Bed.start(nodes=2) as bed:
        nodes = [ShimNode(bed, name) for name in bed.nodes]
        for node in nodes:
            node.install()
        return [
            _measured(nodes, kind, compress, mib, rounds)
            for kind in _CONTENT
            for compress in ("none", "zstd")
        ]


def table(results: list[Result]) -> Iterator[str]:
    """Return lines for people."""
    yield f"{'memory':>8} {'compress':>8} {'MiB stored':>10} {'checkpoint s':>12} {'resume s':>9}"
    for found in results:
        yield (
            f"{found['kind']:>8} {found['compress']:>8} {found['bytes'] / 2**20:>10.0f} "
            f"{found['checkpoint_seconds']:>12.2f} {found['resume_seconds']:>9.2f}"
        )


def _measured(nodes: list[ShimNode], kind: str, compress: str, mib: int, rounds: int) -> Result:
    for node in nodes:
        scratch = Path(node.bed.root) / f"scratch-{node.name}"
        node.configure(compress=compress, scratch=scratch)
    command = ["python3", "-c", _PROGRAM.format(content=_CONTENT[kind].format(mib=mib))]
    job, place = int(time.time() * 10) % 10_000_000, list(nodes)
    container = place[0].run(job, 1, command)
    wait_until(lambda: place[0].logs(container), 300, "the job's memory")
    samples = []
    written = plain = 0
    for epoch in range(1, rounds + 1):
        place[0].checkpoint(container)
        saved = place[0].receipt(job, epoch)
        place[0].remove(container)
        place.reverse()
        container = place[0].run(job, epoch + 1, command, generation=saved["generation"])
        resumed = place[0].receipt(job, epoch + 1, "resume")
        samples.append((saved["empty"] - saved["frozen"], resumed["restored"] - resumed["began"]))
        written, plain = saved["bytes"], saved["plain_bytes"]
        shutil.rmtree(place[0].checkpoints / str(job) / str(saved["generation"]))
    place[0].remove(container)
    for node in nodes:
        for number in range(1, rounds + 2):
            node.verb("reap", job, number)
    return {
        "kind": kind,
        "compress": compress,
        "mib": mib,
        "bytes": written,
        "plain_bytes": plain,
        "checkpoint_seconds": median(saving for saving, _ in samples),
        "resume_seconds": median(resuming for _, resuming in samples),
        "samples": samples,
    }


def main() -> None:
    found = run()
    for line in table(found):
        print(line, file=sys.stderr)
    print(json.dumps({"benchmark": "pack", "results": found}))


if __name__ == "__main__":
    main()
