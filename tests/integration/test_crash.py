"""A node loses its power under a job that writes: the job's output is as if nothing had been."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration import kills
from tests.integration.life import Watcher, lives
from tests.integration.service_kit import QUICK, Service, story
from tests.testbed import cgroups, wait_until
from tests.testbed.processes import command, everybody

pytestmark = pytest.mark.bed

_LINES = 900
_SOON: dict[str, dict[str, object]] = {
    "policy": {**QUICK["policy"], "trial_seconds": 1, "checkpoint_min_seconds": 2}
}

#: Writes the same files and the same log whenever it runs, some of it from buffers of its own.
WRITER = f"""
import sys, time
folder, pause = sys.argv[1], float(sys.argv[2])
table, raw = open(folder + "/table", "a"), open(folder + "/raw", "ab", buffering=0)
for n in range({_LINES}):
    print("line", n, flush=True)
    print(n, n * n, file=table)
    raw.write(b"%d\\n" % n)
    time.sleep(pause)
print("end", flush=True)
"""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service.start(settings=_SOON) as service:
        yield service


class Writer:
    """A job that writes, and what an undisturbed run of it leaves."""

    def __init__(self, service: Service, name: str, *options: str) -> None:
        self.service = service
        self.folder = service.bed.data / name
        self.folder.mkdir()
        words = ("--name", name, "--mount", f"{self.folder}:/data", *options)
        self.job = service.submit("python3", "-c", WRITER, "/data", "0.02", options=words)

    def wait_saved(self, more: int = 1) -> None:
        """Wait for checkpoints beyond those that there are, and for progress after them."""

        def count() -> int:
            return len(self.service.job(self.job)["checkpoints"])

        wanted = count() + more
        wait_until(lambda: count() >= wanted, 60, "a checkpoint")
        before = self.raw()
        wait_until(lambda: self.raw() >= before + 20, 30, "progress")

    def raw(self) -> int:
        """Return how far it is."""
        path = self.folder / "raw"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def check(self, expected: Path) -> None:
        """Compare everything that it left with an undisturbed run, byte for byte."""
        for name in ("table", "raw"):
            assert (expected / name).read_bytes() == (self.folder / name).read_bytes(), name
        assert (expected / "log").read_bytes() == self.service.log(self.job)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the program leaves when nothing happens to it."""
    folder = tmp_path_factory.mktemp("undisturbed")
    argv = [sys.executable, "-c", WRITER, str(folder), "0"]
    done = subprocess.run(argv, capture_output=True, check=True)
    (folder / "log").write_bytes(done.stdout)
    return folder


def _switch_off(service: Service, node: str) -> None:
    """Kill the node's engine, its shims, its containers and its slurmd: nothing answers."""
    bed = service.bed
    for part in ("dockerd", "slurmd"):
        bed.kill(part, node)
    home = f"{bed.layout.node(node)}/"
    places = [f"{top}/{node}" for top in bed.layout.cgroups]

    def dark() -> bool:
        found = [p for place in places for own in cgroups.members(place).values() for p in own]
        found += [p for p in everybody() if any(home in word for word in command(p))]
        for place in places:
            cgroups.thaw(place)
        for process in found:
            process.kill()
        return not found

    wait_until(dark, 30, f"{node} to be dark")


def test_node_without_power_costs_one_interval(service: Service, undisturbed: Path) -> None:
    """
    Its job goes on elsewhere from its last checkpoint, and nobody can tell from what it left.
    """
    with Watcher.watching(service.bed):
        job = Writer(service, "power", "--checkpoint-every", "0:03")
        node = service.wait_node(job.job)
        job.wait_saved(2)
        _switch_off(service, node)
        wait_until(lambda: not _node(service, node)["reachable"], 60, "the daemon to notice")
        found = service.job(job.job)
        assert 1 == len(found["segments"]), story(found)
        refused = service.cli("node", "gone", node, check=False)
        assert 2 == refused.returncode
        assert "lives any more" in refused.stderr
        told = service.cli("node", "gone", "--yes", node).stdout
        assert f"jobs that fall back: {job.job}" in told
        service.wait_node(job.job, other_than=node)
        found = service.wait_state(job.job, "completed", seconds=60)

    job.check(undisturbed)
    kinds = {c["generation"]: c["kind"] for c in found["checkpoints"]}
    assert "periodic" == kinds[found["segments"][1]["resumed_from"]], story(found)
    assert ["crashed", "completed"] == [s["outcome"] for s in found["segments"]]
    assert 0 < found["lost_seconds"] < 30

    assert _node(service, node)["gone"]
    service.bed.restart("dockerd", node)
    service.bed.restart("slurmd", node)
    wait_until(lambda: _back(service, node), 90, f"{node} to be used again")


def _node(service: Service, name: str) -> dict[str, object]:
    return next(node for node in service.api.nodes() if node["name"] == name)


def _back(service: Service, name: str) -> bool:
    found = _node(service, name)
    return bool(found["fit"]) and not found["gone"]


def test_changed_files_are_for_the_submitter_to_judge(service: Service) -> None:
    """
    A crash of the job alone: what somebody else did to its files holds it until he says so.
    """
    job = Writer(service, "meddled")
    service.wait_node(job.job)
    job.wait_saved()
    (life,) = [at for at in lives(service.bed) if at.job == job.job and at.pids]
    for pid in life.pids:
        os.kill(pid, 9)
    raw = job.folder / "raw"
    raw.write_bytes(b"x" + raw.read_bytes()[1:50])
    held = service.wait_state(job.job, "held")
    assert [line for line in held["changed_files"] if "/data/raw" in line], story(held)
    assert "/data/raw" in held["reason"]
    service.cli("release", str(job.job))
    service.wait_segment(job.job, 2)
    service.cli("cancel", str(job.job))
    service.wait_state(job.job, "cancelled")
    wait_until(lambda: not kills.leftovers(service), 60, "the nodes to be empty")
