"""The bed itself: real parts that work, and an end that leaves nothing."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.testbed import Bed, layout, processes, teardown, wait_until
from tests.testbed.layout import Layout
from tests.testbed.paths import REPO

pytestmark = pytest.mark.bed


def traces_of(known: Layout) -> list[str]:
    """Return what names a bed anywhere on the machine, found without the bed's own records."""
    names = (known.instance, str(known.root))
    found = [
        str(folder) for folder in Path("/sys/fs/cgroup").rglob(known.instance) if folder.is_dir()
    ]
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    found += [line for line in mounts if any(name in line for name in names)]
    for process in processes.everybody():
        told = [*processes.command(process), *processes.cgroup_paths(process)]
        told += [entry for entry in processes.environment(process) if entry.startswith("BED_MARK")]
        if process.alive() and any(name in word for word in told for name in names):
            found.append(f"{process.pid} {' '.join(processes.command(process))}")
    return found + [str(path) for path in (known.root,) if path.exists()]


def run_container(bed: Bed, node: str, name: str, *command: str) -> int:
    """Start a container in a cgroup as a segment has it, and return its process."""
    place = f"{bed.layout.cgroups[0]}/{node}/7.1"
    options = ("--detach", "--name", name, "--network", "none", "--cgroup-parent", place)
    bed.docker(node, "run", *options, "stopgap/busybox:1", *command)
    return int(bed.docker(node, "inspect", "--format", "{{.State.Pid}}", name))


def test_slurm_sees_every_node_idle(bed: Bed) -> None:
    answer = bed.run(["sinfo", "--noheader", "--partition=priority", "--format=%T %D"])

    assert answer.stdout.split() == ["idle", "4"]


def test_priority_job_runs_on_a_whole_node(bed: Bed) -> None:
    script = "#!/bin/sh\nsqueue --noheader --job $SLURM_JOB_ID --format='%N %C'\n"

    bed.run(["sbatch", "--wait", "--ntasks=1", "--output=whole.out"], text=script)

    _, cpus = (bed.data / "whole.out").read_text().split()
    assert cpus == "4"


def test_prolog_of_a_node_runs_before_the_job(bed: Bed) -> None:
    hook = bed.layout.install_dir("n2") / "prolog"
    hook.parent.mkdir()
    hook.write_text(f"#!/bin/sh\necho prolog >>{bed.data}/order\n")
    hook.chmod(0o755)

    bed.run(["sbatch", "--wait", "--nodelist=n2", "--wrap", f"echo job >>{bed.data}/order"])

    assert (bed.data / "order").read_text().split() == ["prolog", "job"]


@pytest.mark.parametrize("number", range(4))
def test_engine_runs_both_images(bed: Bed, number: int) -> None:
    node = bed.nodes[number]
    once = ("run", "--rm", "--network", "none")
    product = "import numpy, sqlite3; print(int((numpy.eye(300) @ numpy.ones((300, 300))).sum()))"

    assert bed.docker(node, *once, "stopgap/busybox:1", "echo", "here") == "here"
    assert bed.docker(node, *once, "stopgap/python:1", "python3", "-c", product) == "90000"


def test_engines_have_nothing_in_common(bed: Bed) -> None:
    identities = {bed.docker(node, "info", "--format", "{{.ID}}") for node in bed.nodes}

    assert len(identities) == len(bed.nodes)


def test_engine_finds_the_private_criu(bed: Bed) -> None:
    run_container(bed, "n3", "saved", "sleep", "1000")

    bed.docker("n3", "checkpoint", "create", "saved", "first")

    assert bed.docker("n3", "wait", "saved") == "137"
    assert "first" in bed.docker("n3", "checkpoint", "ls", "saved").split()


def test_segments_are_read_from_cgroups(bed: Bed) -> None:
    pid = run_container(bed, "n4", "segment", "sleep", "1000")

    assert bed.cgroup_processes("n4") == {"7.1": [pid]}
    assert bed.cgroup_processes("n1") == {}

    bed.docker("n4", "kill", "segment")
    wait_until(lambda: not bed.cgroup_processes("n4"), 10, "the segment's cgroup to empty")


@pytest.mark.parametrize(
    ("component", "node"),
    [("slurmctld", ""), ("slurmd", "n1"), ("munged", ""), ("dockerd", "n1")],
)
def test_killed_part_can_be_restarted(bed: Bed, component: str, node: str) -> None:
    bed.kill(component, node)
    assert not bed.whole

    bed.restart(component, node)

    assert bed.whole
    bed.docker("n1", "run", "--rm", "--network", "none", "stopgap/busybox:1", "true")
    bed.run(["srun", "--nodelist=n1", "true"])


def test_end_leaves_nothing_of_busy_parts() -> None:
    with Bed.start(nodes=2) as bed:
        run_container(bed, "n1", "frozen", "sleep", "1000")
        bed.docker("n1", "pause", "frozen")
        bed.docker("n2", "run", "-d", "--network=none", "stopgap/python:1", "sleep", "1000")
        bed.run(["sbatch", "--wrap", "sleep 1000 & setsid sleep 1001"])
        wait_until(lambda: "R" in bed.run(["squeue", "-ho%t"]).stdout, 20, "the batch job")

    assert traces_of(bed.layout) == []


def test_end_leaves_nothing_of_killed_engines() -> None:
    with Bed.start(nodes=2) as bed:
        orphan = run_container(bed, "n1", "orphan", "sleep", "1000")
        sockets = [
            Path(told.read_text().removeprefix("unix://"))
            for told in bed.root.glob("nodes/n1/exec/containerd/daemon/*/*/*/address")
        ]
        bed.kill("dockerd", "n1")
        bed.kill("slurmctld")
        assert bed.cgroup_processes("n1") == {"7.1": [orphan]}

    assert traces_of(bed.layout) == []
    assert sockets
    assert not any(socket.exists() for socket in sockets)


@dataclass(frozen=True)
class Checkout:
    """A place with a current bed of its own, and the command line for it."""

    notes: Path

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "STOPGAP_BED_NOTES": str(self.notes)}

    @property
    def layout(self) -> Layout | None:
        return layout.load(self.notes / "bed")

    def call(self, *verb: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "tests.testbed", *verb]
        return subprocess.run(
            argv, cwd=REPO, env=self.env, capture_output=True, text=True, check=False
        )


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Checkout]:
    place = Checkout(tmp_path)
    yield place
    if known := place.layout:
        teardown.tear_down(known)


@pytest.mark.parametrize("started", [0, 1, 4, 7])
def test_end_leaves_nothing_of_a_bed_killed_half_way(checkout: Checkout, started: int) -> None:
    argv = [sys.executable, "-m", "tests.testbed", "up", "--no-daemon"]
    with subprocess.Popen(argv, cwd=REPO, env=checkout.env, stderr=subprocess.DEVNULL) as starting:
        known = wait_until(lambda: checkout.layout, 20, "a root", every=0.001)
        assert known is not None
        enough = lambda: len(processes.recorded(known.registry)) >= started  # noqa: E731
        wait_until(enough, 20, f"{started} processes", every=0.001)
        starting.send_signal(signal.SIGKILL)

    answer = checkout.call("down")

    assert (answer.returncode, answer.stderr) == (0, "the bed is down\n")
    assert traces_of(known) == []


def test_command_line_starts_one_bed_and_ends_it(checkout: Checkout) -> None:
    assert "no bed is up" in checkout.call("env").stderr
    assert checkout.call("up", "--no-daemon").returncode == 0
    known = checkout.layout
    assert known is not None

    again = checkout.call("up", "--no-daemon")
    exports = checkout.call("env")

    assert (again.returncode, again.stdout) == (0, "")
    assert f"a bed is up already at {known.root}" in again.stderr
    lines = exports.stdout.splitlines()
    assert f"export BED_NODES='{' '.join(known.nodes)}'" in lines
    assert all(line.startswith("export ") for line in lines)
    assert checkout.call("down").returncode == 0
    assert traces_of(known) == []
    assert checkout.call("down").stderr == "no bed is up\n"


def test_bed_of_a_killed_program_is_swept_by_the_next(checkout: Checkout) -> None:
    program = (
        "from tests.testbed import Bed\nwith Bed.start(nodes=1): print('up', flush=True); input()"
    )
    argv = [sys.executable, "-c", program]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, cwd=REPO, env=checkout.env, stdin=pipe, stdout=pipe) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"up\n"
        (note,) = (checkout.notes / "beds").iterdir()
        known = layout.load(note)
        assert known is not None
        owner.kill()

    assert checkout.call("down").returncode == 0

    assert traces_of(known) == []
    assert not note.exists()
