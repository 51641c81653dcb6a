"""Who is killed, and when: conditions that are read from files and from the kernel."""

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from migration.manifest import ROOT_MARK
from tests.integration.life import Life, cgroup_of, lives
from tests.integration.service_jobs import Steady, read_text
from tests.integration.service_kit import Service
from tests.testbed import wait_until

#: Between two looks for a moment; some last no longer than a few milliseconds.
_EVERY = 0.001


class Move:
    """One job's way from its first segment to its second."""

    def __init__(self, service: Service, name: str) -> None:
        self.service = service
        self.bed = service.bed
        self.steady = Steady(service, name)
        self.job = self.steady.job
        self.source = service.wait_node(self.job)
        self.target = next(node for node in self.bed.nodes if node != self.source)
        self.steady.wait_progress()

    @property
    def checkpoints(self) -> Path:
        return self.service.store_of(self.job)

    def node_of(self, epoch: int) -> str:
        return self.source if epoch == 1 else self.target

    def life(self, epoch: int) -> Life | None:
        """Return what the kernel says about a segment."""
        found = [at for at in lives(self.bed) if (at.job, at.epoch) == (self.job, epoch)]
        return found[0] if found else None

    def container(self, epoch: int) -> str:
        """Return the container of a segment; empty when there is none."""
        name = f'"Name":"/stopgap-{self.bed.layout.instance}-{self.job}-{epoch}"'
        folder = self.bed.layout.node(self.node_of(epoch)) / "docker/containers"
        found = [p.parent.name for p in folder.glob("*/config.v2.json") if name in read_text(p)]
        return found[0] if found else ""

    def record(self, epoch: int, name: str) -> bool:
        """Tell whether the shim remembers something of a segment's container."""
        folder = self.bed.layout.install_dir(self.node_of(epoch)) / "state/containers"
        mine = f"job={self.job}\nepoch={epoch}\n"
        return any(
            mine in read_text(place / "record") and (place / name).exists()
            for place in folder.glob("*")
        )

    def state(self) -> str:
        return str(self.service.job(self.job)["state"])

    def gone(self) -> bool:
        """Tell whether the first segment was committed and has no process left."""
        if not self.exists("1", "manifest.json"):
            return False
        at = self.life(1)
        return at is None or not at.pids

    def exists(self, *names: str) -> bool:
        """Tell whether there is such a file of the job's among the checkpoints."""
        return (self.checkpoints.joinpath(*names)).exists()


def frozen(service: Service, node: str, job: int, epoch: int) -> bool:
    """Tell whether somebody has told a segment to stop."""
    place = cgroup_of(service.bed, node, job, epoch)
    told = [read_text(path) for path in place.glob("*/freezer.state")]
    told += ["FROZEN" for path in place.glob("*/cgroup.freeze") if "1" in read_text(path)]
    return any("FR" in word for word in told)


Condition = Callable[[Move], bool]

#: From the claim to the end of the first segment, in this order.
EVICTION: dict[str, Condition] = {
    "claimed": lambda _: True,
    "frozen": lambda m: frozen(m.service, m.source, m.job, 1),
    "evicting": lambda m: m.state() == "evicting",
    "dumping": lambda m: m.record(1, "dumping"),
    "generation": lambda m: m.exists("1"),
    "pages": lambda m: m.exists("1", "images", "pages-1.img"),
    "dumped": lambda m: m.exists("1", "images", "descriptors.json"),
    "committed": lambda m: m.exists("1", "manifest.json"),
    "gone": Move.gone,
    "receipt": lambda m: m.exists("receipts", "1.checkpoint.json"),
    "parked": lambda m: m.state() not in {"running", "evicting"},
    "removed": lambda m: not m.container(1),
}

#: From the choice of another node to the second segment's first instruction.
RESUME: dict[str, Condition] = {
    "resuming": lambda m: m.state() == "resuming",
    "created": lambda m: bool(m.container(2)),
    "entered": lambda m: m.life(2) is not None,
    "recorded": lambda m: m.record(2, "record"),
    "restoring": lambda m: any(cgroup_of(m.bed, m.target, m.job, 2).glob("[0-9a-f]*")),
    "restored": lambda m: m.exists("receipts", "2.resume.json"),
    "awake": lambda m: (at := m.life(2)) is not None and bool(at.awake),
    "running": lambda m: m.state() == "running" and m.service.job(m.job)["node"] == m.target,
}


def kill_stopgapd(move: Move, _epoch: int) -> None:
    move.bed.kill("stopgapd")


def kill_dockerd(move: Move, epoch: int) -> None:
    move.bed.kill("dockerd", move.node_of(epoch))


def kill_containerd(move: Move, epoch: int) -> None:
    move.bed.kill("containerd", move.node_of(epoch))


def kill_containerd_shim(move: Move, epoch: int) -> None:
    container = move.container(epoch)
    _kill(lambda words: "containerd-shim" in words[0] and container in words)


def kill_shim(move: Move, epoch: int) -> None:
    program = f"{move.bed.layout.install_dir(move.node_of(epoch))}/stopgap-runc"
    container = move.container(epoch)
    _kill(lambda words: program in words and container in words)


def _kill(is_meant: Callable[[list[str]], bool]) -> None:
    """Kill the processes that are meant, the newest first, and wait until they are gone."""
    for pid, words in _commands():
        if is_meant(words):
            os.kill(pid, signal.SIGKILL)
            wait_until(partial(_is_dead, pid), 20, f"the end of {words}")


def _is_dead(pid: int) -> bool:
    return read_text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split(" ")[1:2] in ([], ["Z"])


def _commands() -> Iterator[tuple[int, list[str]]]:
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    for pid in sorted(pids, reverse=True):
        words = read_text(Path(f"/proc/{pid}/cmdline")).split("\0")
        if words[0]:
            yield pid, words


VICTIMS: dict[str, Callable[[Move, int], None]] = {
    "stopgapd": kill_stopgapd,
    "dockerd": kill_dockerd,
    "containerd": kill_containerd,
    "containerd-shim": kill_containerd_shim,
    "shim": kill_shim,
}


def revive(service: Service) -> None:
    """Start again what is away; containerd is dockerd's own business."""
    for node in service.bed.nodes:
        if service.bed.process("dockerd", node) is None:
            service.bed.restart("dockerd", node)
    if service.bed.process("stopgapd") is None:
        service.bed.start_daemon()


def tidy(service: Service) -> None:
    """Put the bed in order after a test, however that ended."""
    revive(service)
    for job in service.api.jobs():
        service.api.cancel(job["id"])
    for node in service.bed.nodes:
        service.api.undrain(node)
    wait_until(lambda: not leftovers(service), 60, "the nodes to be empty")


def wait_moment(move: Move, condition: Condition, what: str) -> None:
    wait_until(lambda: condition(move), 60, what, every=_EVERY)


def leftovers(service: Service) -> list[str]:
    """Return what is left on the nodes and among the checkpoints when all jobs have ended."""
    bed = service.bed
    found = [f"processes {at}" for at in service.segments().items()]
    for node in bed.nodes:
        label = f"label=stopgap.instance={bed.layout.instance}"
        found += bed.docker(
            node, "ps", "--all", "--format", "{{.Names}}", "--filter", label
        ).split()
    found += [str(p) for p in bed.checkpoints.iterdir() if p.name != ROOT_MARK]
    return found
