"""What a checkpoint and a resume through the shim cost, beside bare runc in the same run.

``python -m tests.benchmarks.bench_shim [--mib 512 2048] [--rounds 3]`` prints a table on
stderr and one JSON object on stdout.  Ours is measured from the call of the engine's API
to the empty cgroup, and from the call to the running job; bare runc by its own run time,
plus fsync of the files that it wrote.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from tests.integration.shim.kit import ShimNode
from tests.testbed import Bed, wait_until

#: Random memory, so that nothing can be left out or made smaller.
PROGRAM = """
import os, sys, time
parts = [os.urandom(1 << 20) for _ in range({mib})]
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""


def main() -> None:
    options = _options()
    with Bed.start(nodes=2) as bed:
        nodes = [ShimNode(bed, name) for name in bed.nodes]
        for node in nodes:
            node.install()
        results = [_compare(bed, nodes, mib, options.rounds) for mib in options.mib]
    for line in _table(results):
        print(line, file=sys.stderr)
    print(json.dumps({"benchmark": "shim", "results": results}))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, nargs="+", default=[512, 2048])
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def _compare(bed: Bed, nodes: list[ShimNode], mib: int, rounds: int) -> dict[str, Any]:
    """Alternate both sides, so that the machine's moods hit them equally."""
    command = ["python3", "-c", PROGRAM.format(mib=mib)]
    samples: dict[str, list[float]] = {}
    with bare(bed, nodes[0], command) as plain, _ours(nodes, command) as ours:
        for _ in range(rounds):
            for name, seconds in {**plain(), **ours()}.items():
                samples.setdefault(name, []).append(seconds)
    middle = {name: median(found) for name, found in samples.items()}
    return {
        "mib": mib,
        "samples": samples,
        "median": middle,
        "checkpoint_ratio": middle["checkpoint"] / middle["bare_checkpoint"],
        "resume_ratio": middle["resume"] / middle["bare_restore"],
    }


@contextmanager
def _ours(nodes: list[ShimNode], command: list[str]) -> Iterator[Callable[[], dict[str, float]]]:
    job = int(time.time()) % 1_000_000
    epoch = 1
    place = [nodes[0], nodes[1]]
    container = place[0].run(job, epoch, command)
    wait_until(lambda: place[0].logs(container), 120, "the job's memory")

    def once() -> dict[str, float]:
        nonlocal container, epoch
        called = time.time()
        place[0].checkpoint(container)
        receipt = place[0].receipt(job, epoch)
        place[0].remove(container)
        epoch += 1
        place.reverse()
        ordered = time.time()
        container = place[0].create(job, epoch, command, generation=receipt["generation"])
        created = time.time()
        place[0].start(container)
        running = time.time()
        resume = place[0].receipt(job, epoch, "resume")
        shutil.rmtree(place[0].checkpoints / str(job) / str(receipt["generation"]))
        return {
            "checkpoint": receipt["empty"] - called,
            "checkpoint_to_shim": receipt["began"] - called,
            "checkpoint_dump": receipt["dump_seconds"],
            "checkpoint_commit": receipt["committed"] - receipt["frozen"],
            "checkpoint_kill": receipt["empty"] - receipt["committed"],
            "resume": running - created,
            "resume_to_shim": resume["began"] - created,
            "resume_shim": resume["restored"] - resume["began"],
            "resume_with_create": running - ordered,
        }

    yield once
    place[0].remove(container)
    for node in nodes:
        for number in range(1, epoch + 1):
            node.verb("reap", job, number)


@contextmanager
def bare(bed: Bed, node: ShimNode, command: list[str]) -> Iterator[Callable[[], dict[str, float]]]:
    """The same process in the same kind of container, by runc alone."""
    home = Path(tempfile.mkdtemp(prefix="bare-", dir=bed.root))
    bundle = home / "bundle"
    _make_bundle(bed, node, bundle, command)
    runc = ["runc", "--root", str(home / "root")]
    process = subprocess.Popen(
        [*runc, "run", "--bundle", str(bundle), "bare"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=bed.env,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    count = 0

    def once() -> dict[str, float]:
        nonlocal count
        count += 1
        images = home / f"images-{count}"
        images.mkdir()
        began = time.time()
        paths = ["--image-path", str(images), "--work-path", str(home / "work")]
        subprocess.run(
            [*runc, "checkpoint", *paths, "bare"], check=True, env=bed.env, capture_output=True
        )
        dumped = time.time()
        for path in [*images.iterdir(), images]:
            _fsync(path)
        synced = time.time()
        restore = ["restore", "--detach", *paths, "--bundle", str(bundle), "bare"]
        subprocess.run(
            [*runc, *restore], check=True, env=bed.env,
            stdin=subprocess.PIPE, stdout=pipes[1], stderr=pipes[1],
        )  # fmt: skip
        restored = time.time()
        shutil.rmtree(images)
        return {
            "bare_checkpoint": synced - began,
            "bare_dump": dumped - began,
            "bare_restore": restored - synced,
        }

    pipes = os.pipe()
    yield once
    subprocess.run([*runc, "delete", "--force", "bare"], check=True, env=bed.env)
    process.communicate()
    os.close(pipes[0])
    os.close(pipes[1])
    shutil.rmtree(home)


def _make_bundle(bed: Bed, node: ShimNode, bundle: Path, command: list[str]) -> None:
    """Take Docker's own configuration of such a container and free it from Docker."""
    (bundle / "rootfs").mkdir(parents=True)
    archive = bundle / "rootfs.tar"
    container = node.create(1, 1, ["sleep", "1000"], env=[], host={
        "CgroupParent": f"{bed.layout.cgroups[1]}/bare"})  # fmt: skip
    node.start(container)
    with archive.open("wb") as sink:
        argv = ["docker", "--host", bed.engines[node.name], "export", container]
        subprocess.run(argv, stdout=sink, check=True)
    with tarfile.open(archive) as source:
        source.extractall(bundle / "rootfs", filter="fully_trusted")  # noqa: S202  our own export
    archive.unlink()
    found = next(bed.layout.node(node.name).glob(f"exec/**/{container}/config.json"))
    config = json.loads(found.read_text())
    node.remove(container)
    config["process"]["args"] = command
    config["root"]["path"] = str(bundle / "rootfs")
    config["mounts"] = [mount for mount in config["mounts"] if mount["type"] != "bind"]
    config["linux"]["cgroupsPath"] = f"{bed.layout.cgroups[1]}/bare/bare"
    config.pop("hooks", None)
    (bundle / "config.json").write_text(json.dumps(config))


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def _table(results: list[dict[str, Any]]) -> Iterator[str]:
    yield f"{'':>26}" + "".join(f"{result['mib']:>8} MiB" for result in results)
    for name in results[0]["median"]:
        yield f"{name:>26}" + "".join(f"{result['median'][name]:>11.3f} s" for result in results)
    for name in ("checkpoint_ratio", "resume_ratio"):
        yield f"{name:>26}" + "".join(f"{result[name]:>12.2f} " for result in results)


if __name__ == "__main__":
    main()
