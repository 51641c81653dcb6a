"""The machine as its administrators and users have it: the command line, systemd, Docker."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from daemon.api.client import Client, ClientError
from tests.testbed.waiting import TookTooLongError, wait_until
from tests.vm.inside import kernel
from tests.vm.inside.report import Report

NODES = ("n1", "n2")
DATA = Path("/srv/data")
BUSYBOX = "stopgap/busybox:1"
#: Everything takes so much longer than it would on a processor.
PATIENCE = 900
_STATE = Path("/root/state.json")

#: Counts in its log and in a file until it is told to stop.
_COUNTER = (
    "n=0; exec 3>>/data/count; while [ ! -e /data/stop ]; do "
    "echo $n; echo $n >&3; n=$((n+1)); usleep 250000; done; echo end"
)

T = TypeVar("T")


class Site:
    """Two engines and the daemon; watches at every wait that no job lives twice."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.api = Client(Path("/run/stopgap/stopgap.sock"))
        self.doubles: list[str] = []
        self.looks = 0

    def cli(self, *words: str, user: str = "root", check: bool = True) -> str:
        """Run ``stopgap`` as one of the users and return what it prints."""
        argv = (
            ["stopgap", *words]
            if user == "root"
            else ["runuser", "-u", user, "--", "stopgap", *words]
        )
        return run(*argv, check=check)

    def submit(self, user: str, name: str) -> int:
        """Enqueue a counter for one of the users and return its number."""
        folder = DATA / name
        folder.mkdir()
        uid = int(run("id", "-u", user))
        os.chown(folder, uid, uid)
        words = ("--json", "--image", BUSYBOX, "--mem", "128M", "--mount", f"{folder}:/data")
        said = self.cli("submit", *words, "--", "sh", "-c", _COUNTER, user=user)
        return int(json.loads(said)["id"])

    def job(self, job: int) -> dict[str, Any]:
        """Describe a job; nothing while the daemon does not answer."""
        try:
            return self.api.job(job)
        except ClientError:
            return {}

    def wait(self, condition: Callable[[], T], what: str, *, seconds: float = PATIENCE) -> T:
        """Wait for something, looking on."""

        def looked() -> T:
            self.look()
            return condition()

        return wait_until(looked, seconds, what, every=1.0)

    def wait_on(self, job: int, node: str) -> kernel.Segment:
        """Wait until a job runs on this node and nowhere else, and counts there."""

        def there() -> kernel.Segment | None:
            found = [segment for segment in kernel.segments() if segment.job == job]
            on_it = len(found) == 1 and found[0].node == node
            running = on_it and self.job(job).get("state") == "running"
            return found[0] if running else None

        try:
            found = self.wait(there, f"job {job} to run on {node}")
        except TookTooLongError as exc:
            raise AssertionError(f"{exc}: {self.story(job)}") from exc
        assert found is not None
        return found

    def wait_state(self, job: int, state: str) -> dict[str, Any]:
        """Wait until a job is in this state."""
        try:
            self.wait(lambda: self.job(job).get("state") == state, f"job {job} to be {state}")
        except TookTooLongError as exc:
            raise AssertionError(f"{exc}: {self.story(job)}") from exc
        return self.job(job)

    def wait_progress(self, name: str, more: int = 5) -> None:
        """Wait until a counter has counted on."""
        then = len(counted(name))
        self.wait(lambda: len(counted(name)) >= then + more, f"{name} to count on")

    def look(self) -> None:
        """Note every job that lives more than once at this moment."""
        self.looks += 1
        seen: dict[int, set[tuple[str, int]]] = {}
        for segment in kernel.segments():
            seen.setdefault(segment.job, set()).add((segment.node, segment.epoch))
        self.doubles += [
            f"job {job} in {places}" for job, places in seen.items() if len(places) > 1
        ]

    def story(self, job: int) -> str:
        """Return a job's history, for the reader of a failure."""
        found = self.job(job)
        events = [f"{e['time'][11:23]} {e['event']} {e['reason']}" for e in found.get("events", ())]
        nodes = [f"{node['name']}: {node['reason']}" for node in self.api.nodes()]
        return "\n".join(
            [f"{found.get('state')} on {found.get('node')}: {found.get('reason')}", *events, *nodes]
        )

    def log(self, job: int) -> list[str]:
        """Return the lines that the job has printed in all of its segments."""
        return b"".join(self.api.logs(job)).decode().splitlines()


def counted(name: str) -> list[str]:
    """Return the lines of a counter's file; a last one may be half of one."""
    path = DATA / name / "count"
    return path.read_text().split("\n")[:-1] if path.exists() else []


def gapless(lines: list[str]) -> bool:
    """Tell whether these are the numbers from 0 on, each once."""
    return lines == [str(number) for number in range(len(lines))]


def run(*argv: str, check: bool = True) -> str:
    """
    Run a program and return what it printed.

    Raises:
        AssertionError: it failed.
    """
    answer = subprocess.run(argv, capture_output=True, text=True, check=False)
    if check and answer.returncode:
        words = (answer.stderr + answer.stdout)[-2000:]
        raise AssertionError(f"{' '.join(argv)} exited with {answer.returncode}: {words}")
    return answer.stdout


def docker(node: str, *words: str) -> str:
    """Ask a node's engine."""
    return run("docker", "--host", f"unix:///run/engines/{node}.sock", *words)


def properties(unit: str, *names: str) -> dict[str, str]:
    """Return what systemd says about a unit."""
    said = run("systemctl", "show", unit, *(f"--property={name}" for name in names))
    return dict(line.split("=", 1) for line in said.splitlines() if "=" in line)


def remember(**facts: object) -> None:
    """Keep something for the next part, also over a reboot."""
    known = {**recall(), **facts}
    fresh = _STATE.with_suffix(".new")
    fresh.write_text(json.dumps(known))
    fresh.rename(_STATE)
    # The name, too, must be on the disk when the power is cut.
    os.sync()


def recall() -> dict[str, Any]:
    """Return what earlier parts kept."""
    found: dict[str, Any] = json.loads(_STATE.read_text()) if _STATE.exists() else {}
    return found


def stopwatch() -> Callable[[], float]:
    """Return a function that tells the seconds since now."""
    began = time.monotonic()
    return lambda: round(time.monotonic() - began, 1)
