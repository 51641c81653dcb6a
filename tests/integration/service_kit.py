"""The whole service on a bed, as its users and its administrators have it: the command line."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, Self

from daemon.api.client import Client, ClientError, Document
from tests.integration.life import Life, lives
from tests.testbed import Bed, wait_until
from tests.testbed.waiting import TookTooLongError

ENDED = frozenset({"completed", "failed", "cancelled", "timed_out"})

#: Claims that a test makes are forgotten soon after, so that the node can be filled again; and
#: no checkpoint comes between those that it asks for.
QUICK: dict[str, dict[str, object]] = {"policy": {"linger_seconds": 1, "trial_seconds": 3600}}


class Service:
    """A bed with the daemon and with nodes that are set up and have passed the canary."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        #: Asks what the command line asks, without the time that starting a program takes.
        self.api = Client(bed.layout.socket)

    @classmethod
    @contextmanager
    def start(
        cls,
        *,
        nodes: int = 2,
        settings: Mapping[str, Mapping[str, object]] = QUICK,
        prepare: Callable[[Bed], None] = lambda _bed: None,
    ) -> Iterator[Self]:
        """Start a bed with everything, ``prepare`` before the daemon; it ends with the block."""
        with Bed.start(nodes=nodes, settings=settings) as bed:
            service = cls(bed)
            prepare(bed)
            bed.start_daemon()
            bed.setup_nodes()
            wait_until(service.all_fit, 300, "the canaries to come back", every=0.2)
            yield service

    def all_fit(self) -> bool:
        """Tell whether every node has passed the canary, which the daemon sends by itself."""
        return all(node["fit"] for node in self.api.nodes())

    # -- the command line ---------------------------------------------------

    def cli(self, *words: str, check: bool = True, seconds: float = 60) -> CompletedProcess[str]:
        """Run ``stopgap`` with these words."""
        return self.bed.run(["stopgap", *words], check=check, seconds=seconds)

    def submit(self, *command: str, options: tuple[str, ...] = ()) -> int:
        """Enqueue a job of the image with Python and return its number."""
        words = ("submit", "--json", "--image", "stopgap/python:1", "--mem", "128M")
        return int(json.loads(self.cli(*words, *options, "--", *command).stdout)["id"])

    def log(self, job: int) -> bytes:
        """Return what the job has printed in all of its segments."""
        return self.cli("logs", str(job)).stdout.encode()

    # -- jobs ---------------------------------------------------------------

    def job(self, job: int) -> Document:
        """Describe the job."""
        return self.api.job(job)

    def wait_state(self, job: int, *states: str, seconds: float = 90) -> Document:
        """Wait until the job is in one of these states, and describe it."""
        last: Document = {}

        def reached() -> Document:
            nonlocal last
            try:
                last = self.job(job)
            except ClientError:
                # Its daemon was killed and is not back yet.
                return {}
            if last["state"] in ENDED and last["state"] not in states:
                tail = self.log(job)[-1000:].decode()
                raise AssertionError(f"job {job} ended: {story(last)}\n{tail}")
            return last if last["state"] in states else {}

        try:
            return wait_until(reached, seconds, f"job {job} to be {' or '.join(states)}")
        except TookTooLongError as exc:
            nodes = self.cli("nodes", check=False).stdout
            raise AssertionError(f"{exc}: {story(last)}\n{nodes}") from exc

    def wait_node(self, job: int, *, other_than: str = "", seconds: float = 90) -> str:
        """Wait until the job runs, on another node, and return which one."""
        end = time.monotonic() + seconds
        while True:
            left = max(0.1, end - time.monotonic())
            found = self.wait_state(job, "running", seconds=left)
            if found["node"] != other_than:
                return str(found["node"])
            if time.monotonic() > end:
                raise AssertionError(f"job {job} stays on {other_than}: {story(found)}")

    def wait_segment(self, job: int, number: int, seconds: float = 90) -> Document:
        """Wait until the job runs in its so-many-th segment, and describe it."""
        found: Document = {}

        def runs() -> bool:
            nonlocal found
            found = self.wait_state(job, "running", seconds=seconds)
            return len(found["segments"]) >= number

        wait_until(runs, seconds, f"segment {number} of job {job}")
        return found

    # -- priority jobs ------------------------------------------------------

    def claim(self, node: str, script: str = "sleep 3", *options: str) -> str:
        """Submit a priority job for this node and return its number."""
        words = ["sbatch", "--parsable", f"--nodelist={node}", *options, f"--wrap={script}"]
        return self.bed.run(words).stdout.strip()

    # -- what is on the nodes, without asking Docker ------------------------

    def segments(self) -> dict[tuple[str, int, int], frozenset[int]]:
        """Return the processes of every segment that has some, by node, job and epoch."""
        return {(at.node, at.job, at.epoch): at.pids for at in lives(self.bed) if at.pids}

    def on_node(self, node: str) -> list[Life]:
        """Return the segments that have processes on a node."""
        return [at for at in lives(self.bed) if at.pids and at.node == node]

    def daemon_events(self) -> list[dict[str, Any]]:
        """Return what the daemon has logged."""
        lines = (self.bed.layout.logs / "stopgapd.out").read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def store_of(self, job: int) -> Path:
        """Return the job's directory among the checkpoints."""
        return self.bed.checkpoints / str(job)


def story(job: Mapping[str, Any]) -> str:
    """Return a job's history, for the reader of a failed test."""
    events = [f"{e['time'][11:23]} {e['event']} {e['reason']}" for e in job.get("events", ())]
    return "\n".join([f"{job.get('state')} on {job.get('node')}: {job.get('reason')}", *events])
