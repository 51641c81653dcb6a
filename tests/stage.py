"""The whole loop on fakes: the cluster model as batch system, the fake engine as nodes.

Everything between the two is the real thing, threads and store included.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from adapters.base import BatchAdapter
from adapters.mock_slurm.adapter import MockAdapter
from adapters.mock_slurm.model import Model
from adapters.mock_slurm.nouns import Machine as Computer
from adapters.mock_slurm.nouns import PriorityJob
from daemon.acts.output import OutputWriter
from daemon.acts.tools import Tools
from daemon.clock import Clock
from daemon.controller import Controller
from daemon.core.actions import Action
from daemon.core.fit import misfit
from daemon.core.policy import Policy
from daemon.core.types import (
    Checkpoint,
    CheckpointKind,
    Job,
    JobId,
    JobSpec,
    JobState,
    Machine,
    NodeName,
    Owner,
    SegmentRef,
)
from daemon.desk.following import log_of
from daemon.executor import Executor
from daemon.observer import Observer, Watch
from daemon.recovery import recover
from daemon.store import Store
from daemon.store.spool import Spool
from migration.base import Fingerprint, Kept, NotResumableError, Placed, Saved, StartOrder
from migration.fake import FakeEngine, Program
from tests.contract.clock import START, ManualClock

_QUIET_SECONDS = 20.0
MACHINE = Machine(architecture="x86_64", cgroup="2", cpu=frozenset({"avx", "sse"}), criu="4.2")


@dataclass(frozen=True, slots=True)
class Passed:
    """A canary that came through."""

    passed: bool = True
    reason: str = ""
    other_users: bool = True
    interrupted: bool = False


@dataclass
class FakeProber:
    """Finds every node in order, or what a test says of it."""

    reports: dict[NodeName, Passed] = field(default_factory=dict)
    #: What nodes have for a process, where a test says so.
    machines: dict[NodeName, Machine] = field(default_factory=dict)
    canaries: list[NodeName] = field(default_factory=list)
    #: Happens while a canary runs.
    meanwhile: Callable[[NodeName], None] = lambda _node: None

    def fingerprint(self, node: NodeName) -> Fingerprint:
        machine = self.machines.get(node, MACHINE)
        return Fingerprint(
            engine="28.5",
            kernel="6.12",
            runc="1.3",
            criu=machine.criu,
            boot_id=f"{node}-1",
            cgroup=machine.cgroup,
            cpu_flags="",
            architecture=machine.architecture,
            cpu=" ".join(sorted(machine.cpu)),
        )

    def probe(self, node: NodeName) -> Passed:
        self.canaries.append(node)
        self.meanwhile(node)
        return self.reports.get(node, Passed())


class StageEngine(FakeEngine):
    """The fake engine, on nodes that are as different as their prober finds them."""

    def __init__(
        self, clock: Clock, programs: Mapping[tuple[str, ...], Program] | None, prober: FakeProber
    ) -> None:
        super().__init__(clock, programs)
        self._prober = prober

    def end(self, ref: SegmentRef, exit_code: int) -> None:
        """Let a segment end by itself."""
        self._node(ref.node).segments[ref].exit_code = exit_code

    def switch_off(self, node: NodeName) -> None:
        """Let the node lose its power: its jobs are gone, and nothing answers."""
        self.reboot(node)
        self.cut(node)

    def place(self, order: StartOrder) -> Placed:
        for checkpoint in self.checkpoints(order.ref.job):
            here = self._prober.fingerprint(order.ref.node).machine
            if checkpoint.generation == order.generation and checkpoint.machine is not None:
                why = misfit(checkpoint.machine, here)
                if why:
                    raise NotResumableError(f"the generation does not fit this node: {why}")
        return super().place(order)

    def checkpoint(self, ref: SegmentRef, *, deadline_seconds: float) -> Saved:
        saved = super().checkpoint(ref, deadline_seconds=deadline_seconds)
        return replace(saved, checkpoint=self._marked(saved.checkpoint, ref))

    def save(
        self,
        ref: SegmentRef,
        *,
        deadline_seconds: float,
        kind: CheckpointKind = CheckpointKind.PERIODIC,
    ) -> Kept:
        kept = super().save(ref, deadline_seconds=deadline_seconds, kind=kind)
        return replace(kept, checkpoint=self._marked(kept.checkpoint, ref))

    def _marked(self, checkpoint: Checkpoint, ref: SegmentRef) -> Checkpoint:
        machine = self._prober.fingerprint(ref.node).machine
        here = self._disk.saved[ref.job]
        marked = replace(checkpoint, machine=machine)
        here[checkpoint.generation] = replace(here[checkpoint.generation], checkpoint=marked)
        return marked


class Stage:
    """One daemon's loop that a test turns by hand."""

    ordinary = Owner(uid=1000, gid=1000, name="ada")

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 2,
        programs: Mapping[tuple[str, ...], Program] | None = None,
        policy: Policy | None = None,
    ) -> None:
        self.folder = folder
        self.policy = policy or Policy()
        self.clock = ManualClock()
        self.model = Model(
            (
                Computer(name=NodeName(f"n{i}"), cpus=4, memory_mib=4096)
                for i in range(1, nodes + 1)
            ),
            start=START.timestamp(),
        )
        self.batch = MockAdapter(self.model)
        self.adapter = self.batch_system(nodes)
        self.prober = FakeProber()
        self.engine = StageEngine(self.clock, programs, self.prober)
        self._priority = 0
        self.open()

    def batch_system(self, nodes: int) -> BatchAdapter:
        """Return the batch system with its idle nodes: the cluster model."""
        return self.batch

    def tell_time(self) -> None:
        """Let the batch system's time be the clock's."""
        self.model.advance_to(self.clock.now().timestamp())

    def open(self) -> None:
        """Start a daemon on whatever state there is."""
        self.store = Store(self.folder / "stopgap.db", self.policy)
        self.store.open()
        self._awake = threading.Event()
        self.observer = Observer(
            adapter=self.adapter,
            engine=self.engine,
            store=self.store,
            clock=self.clock,
            watch=Watch(idle_looks=1, survey_threads=2, idle_every=1),
            wake=self._awake.set,
        )
        self.observer.open()
        self.tools = Tools(
            store=self.store,
            spool=Spool(self.folder),
            engine=self.engine,
            clock=self.clock,
            observer=self.observer,
            output=OutputWriter(),
            policy=self.policy,
        )
        self.executor = Executor(self.tools, self.prober)
        self.controller = Controller(eyes=self.observer, hands=self.executor, policy=self.policy)
        recover(self.tools)

    def close(self) -> None:
        """End the daemon as SIGTERM does: containers stay as they are."""
        self.executor.close()
        self.observer.close()
        self.store.close()

    def reopen(self) -> None:
        """Let another daemon take over."""
        self.close()
        self.open()

    def submit(self, *command: str, **changes: object) -> JobId:
        """Enqueue a job of root's."""
        fields = {"owner": Owner(uid=0, gid=0, name="root"), "image": "img:1"} | changes
        spec = JobSpec(
            name="job",
            command=command or ("count",),
            **fields,  # type: ignore[arg-type]  # fields of JobSpec, as a test likes
        )
        return self.store.submit(spec, now=self.clock.now()).id

    def claim(self, *nodes: str, seconds: float = 1000.0) -> int:
        """Let a priority job take these nodes now."""
        self._priority += 1
        self.model.advance_to(self.clock.now().timestamp())
        self.model.submit(
            PriorityJob(
                id=self._priority,
                submit=self.clock.now().timestamp(),
                nodes=len(nodes),
                runtime=seconds,
                limit=seconds,
                named=tuple(NodeName(n) for n in nodes),
            )
        )
        self.model.advance_to(self.clock.now().timestamp())
        return self._priority

    def look(self) -> tuple[Action, ...]:
        """Ask everybody, wait for the answers, tick once, wait for the end of what it began."""
        self.tell_time()
        self.observer.ask_batch()
        self.quiet()
        self.observer.survey()
        self.quiet()
        actions = self.controller.tick()
        self.quiet()
        return actions

    def settle(self, rounds: int = 50) -> None:
        """Look until there is nothing left to do."""
        for _ in range(rounds):
            if not self.look():
                return
        raise AssertionError("the loop finds something to do for ever")

    def run(self, seconds: float, step: float = 1.0) -> None:
        """Let time pass in steps, with a look at each."""
        passed = 0.0
        while passed < seconds:
            self.clock.wait(step)
            passed += step
            self.look()

    def quiet(self) -> None:
        """Wait until no question and no action is under way."""
        await_condition(lambda: not self.observer.at_work())

    def job(self, job: JobId) -> Job:
        found = self.store.job(job)
        assert found is not None
        return found

    def state(self, job: JobId) -> JobState:
        return self.job(job).state

    def node(self, job: JobId) -> str | None:
        segment = self.job(job).segment
        return None if segment is None else segment.node

    def counted(self, job: JobId) -> list[int]:
        """Return the numbers that the job has printed."""
        return [int(number) for number in b"".join(log_of(self.tools, job)).split()]


def await_condition(condition: Callable[[], bool], seconds: float = _QUIET_SECONDS) -> None:
    """Wait for something that threads bring about; fail when it does not come."""
    pause = threading.Event()
    left = seconds
    while not condition():
        if left <= 0:
            raise AssertionError("waited in vain")
        pause.wait(0.002)
        left -= 0.002
