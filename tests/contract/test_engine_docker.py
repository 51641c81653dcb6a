"""The real engine, on real Docker, runc and CRIU, keeps the same promises as the fake."""

import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self

import pytest

from daemon.clock import SystemClock
from daemon.core.types import (
    AfterCrash,
    Epoch,
    Generation,
    JobId,
    JobSpec,
    Mount,
    NodeName,
    Owner,
    Phase,
    SegmentRef,
)
from migration.access import Access
from migration.base import (
    ChangedFilesError,
    EngineUnreachableError,
    NotSavedError,
    OrderRefusedError,
    StartOrder,
)
from migration.docker import EngineSaidError
from migration.engine import DockerEngine
from migration.nodes import NodeSetup, StepState
from migration.settings import EngineSettings, NodeSettings, Site
from migration.stores.base import Store
from migration.stores.shared import SharedStore
from migration.ticket import Keys
from tests.contract.engine import EngineContract
from tests.contract.engine_bench import Act, Bench, job_numbers, next_order
from tests.contract.engine_keeping import KeepingContract
from tests.testbed import Bed

pytestmark = pytest.mark.bed

IMAGE = "stopgap/busybox:1"
_COUNT = "i=0; while :; do echo $i; i=$((i+1)); sleep 0.05; done"
_WRITE = "i=0; while :; do echo $i >&3; echo $i; i=$((i+1)); sleep 0.05; done"
_FAIL = "i=0; while [ $i -lt 10 ]; do echo $i; i=$((i+1)); done; exit 3"
COMMANDS = {
    Act.COUNT: ("sh", "-c", _COUNT),
    Act.WRITE: ("sh", "-c", f"exec 3>>/data/numbers; {_WRITE}"),
    Act.FAIL: ("sh", "-c", _FAIL),
    Act.HOG: ("dd", "if=/dev/zero", "of=/dev/null", "bs=200M", "count=1"),
}
_SECONDS = 20.0
#: The machine's own engine (20.10 on Debian 12), 26 and 28.
RELEASES = ("", "trixie", "unstable")


class DockerBench:
    """Two nodes of a bed, set up."""

    here = NodeName("n1")
    there = NodeName("n2")

    def __init__(self, bed: Bed) -> None:
        layout = bed.layout
        self._bed = bed
        root, own = self._root()
        self.clock = SystemClock()
        self.site = Site(instance=layout.instance, mounts=(str(bed.data),))
        self.keys = Keys(b"k" * 32)
        self.access = Access(
            EngineSettings(address=f"unix://{layout.root}/nodes/{{node}}/docker.sock"),
            NodeSettings(
                install_dir=f"{layout.root}/nodes/{{node}}/stopgap",
                daemon_json=f"{layout.root}/nodes/{{node}}/daemon.json",
                pidfile=f"{layout.root}/nodes/{{node}}/docker.pid",
                path=layout.node_path,
                checkpoints=root,
                own_checkpoints=own,
            ),
            layout.instance,
        )
        self.store = self._store()
        self.engine = DockerEngine(self.access, self.site, self.keys, self.store, self.clock)
        self._job = job_numbers()
        self._used: list[JobId] = []

    def _root(self) -> tuple[str, bool]:
        """Return the nodes' root of the checkpoints, and whether each has its own."""
        return str(self._bed.checkpoints), False

    def _store(self) -> Store:
        layout = self._bed.layout
        store = SharedStore(layout.checkpoints, layout.instance, self.keys.site)
        store.claim(layout.state / "checkpoints.root")
        return store

    def folder(self, job: JobId, node: NodeName) -> Path:
        """Return the directory that the node has for the job."""
        return self._bed.checkpoints / str(job)

    @classmethod
    @contextmanager
    def started(cls, release: str = "") -> Iterator[Self]:
        """
        Start a bed of two nodes and set them up; it ends with the block.

        Their engines are those of a Debian release, or the machine's own.
        """
        nodes: tuple[str, ...] = (cls.here, cls.there)
        releases = dict.fromkeys(nodes, release) if release else {}
        with Bed.start(nodes=2, releases=releases) as bed:
            bench = cls(bed)
            bench.set_up()
            yield bench
            bench.access.close()

    @property
    def checkpoints(self) -> Path:
        return self._bed.checkpoints

    def set_up(self) -> None:
        """Place and register the shim."""
        setup = NodeSetup(self.access, self.keys, self.site.instance, self.clock)
        for node in (self.here, self.there):
            failed = [s for s in setup.setup(node) if s.state is StepState.FAILED]
            assert [] == failed

    def clean(self) -> None:
        """End and remove everything that a test has left."""
        for node in (self.here, self.there):
            mark = self._bed.layout.install_dir(node) / "state" / "prolog"
            mark.unlink(missing_ok=True)
            refs = {
                SegmentRef(job=v.job, epoch=v.epoch, node=node) for v in self.engine.survey(node)
            } | {s.ref for s in self.engine.census(node).segments}
            for ref in refs:
                self.await_(partial(self._removed, ref))
        for job in self._used:
            self.engine.forget(job)
            shutil.rmtree(self._data(job), ignore_errors=True)
        self._used.clear()

    def _removed(self, ref: SegmentRef) -> bool:
        try:
            self.engine.remove(ref)
        except EngineSaidError as exc:
            # Docker has not unmounted yet what has just ended; the daemon sweeps it later.
            if "device or resource busy" not in exc.words:
                raise
            return False
        return True

    def order(self, act: Act, node: NodeName) -> StartOrder:
        job = self._job()
        self._used.append(job)
        mounts: tuple[Mount, ...] = ()
        if act is Act.WRITE:
            self._data(job).mkdir()
            mounts = (Mount(source=str(self._data(job)), target="/data"),)
        spec = JobSpec(
            name=act.value,
            owner=Owner(uid=0, gid=0),
            image=IMAGE,
            command=COMMANDS[act],
            memory_mib=32,
            mounts=mounts,
        )
        ref = SegmentRef(job=job, epoch=Epoch(1), node=node)
        return StartOrder(ref=ref, spec=spec, env={}, image_digest=None, seen=self.clock.now())

    def await_(self, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + _SECONDS
        while not condition():
            if time.monotonic() > until:
                pytest.fail("it never came true")
            time.sleep(0.02)

    def cut(self, node: NodeName) -> None:
        socket = self._bed.layout.node(node) / "docker.sock"
        socket.rename(socket.with_suffix(".away"))
        self.access.of(node).docker.forget()

    def mend(self, node: NodeName) -> None:
        socket = self._bed.layout.node(node) / "docker.sock"
        socket.with_suffix(".away").rename(socket)

    def run_prolog(self, node: NodeName) -> None:
        (self._bed.layout.install_dir(node) / "state" / "prolog").touch()

    def spoil(self, job: JobId, generation: Generation) -> None:
        layer = self.folder(job, self.here) / str(generation) / "layer.tar"
        layer.write_bytes(layer.read_bytes()[:-1])

    def written(self, job: JobId) -> bytes:
        path = self._data(job) / "numbers"
        return path.read_bytes() if path.exists() else b""

    def meddle(self, job: JobId) -> str:
        numbers = self._data(job) / "numbers"
        copy = numbers.with_suffix(".copy")
        copy.write_bytes(numbers.read_bytes())
        copy.replace(numbers)
        return "/data/numbers"

    def _data(self, job: JobId) -> Path:
        return self._bed.data / f"job-{job}"


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release or "own")
def nodes(request: pytest.FixtureRequest) -> Iterator[DockerBench]:
    with DockerBench.started(request.param) as bench:
        yield bench


class TestDockerEngine(EngineContract, KeepingContract):
    """All promises, for real."""

    @pytest.fixture
    def bench(self, nodes: DockerBench) -> Iterator[Bench]:
        yield nodes
        nodes.clean()

    def test_docker_start_starts_nothing_twice(self, nodes: DockerBench, bench: Bench) -> None:
        """Somebody who types ``docker start`` is refused by the shim."""
        order = bench.order(Act.FAIL, bench.here)
        bench.engine.place(order)
        b"".join(bench.engine.logs(order.ref, follow=True))
        docker = nodes.access.of(bench.here).docker

        with pytest.raises(Exception, match="used before"):
            docker.call(
                "POST", f"/containers/stopgap-{nodes.site.instance}-{order.ref.job}-1/start"
            )

        assert 10 == b"".join(bench.engine.logs(order.ref)).count(b"\n")

    def test_what_others_append_after_a_crash_is_not_cut_off(
        self, nodes: DockerBench, bench: Bench
    ) -> None:
        """Two jobs may write to one file: the other one's lines are not the crashed one's."""
        order = bench.order(Act.WRITE, bench.here)
        placed = bench.engine.place(order)
        bench.await_(lambda: b"2\n" in bench.written(order.ref.job))
        kept = bench.engine.save(order.ref, deadline_seconds=60).checkpoint
        bench.engine.kill(order.ref)
        path = nodes._data(order.ref.job) / "numbers"
        ended = path.stat().st_mtime

        def append() -> bool:
            with path.open("ab") as file:
                file.write(b"of another job\n")
            return path.stat().st_mtime > ended + 2

        bench.await_(append)
        before = path.read_bytes()
        later = next_order(order, bench.there, placed.image_digest, kept.generation)

        with pytest.raises(ChangedFilesError) as caught:
            bench.engine.place(replace(later, after_crash=AfterCrash.HOLD))
        assert ["somebody else" in line for line in caught.value.files] == [True]
        assert before == path.read_bytes()

    def test_a_root_that_a_node_does_not_see_ends_nothing(
        self, nodes: DockerBench, bench: Bench
    ) -> None:
        """What would be saved beside the mount point is not saved, and the job goes on."""
        order = bench.order(Act.COUNT, bench.here)
        bench.engine.place(order)
        folder = nodes.folder(order.ref.job, bench.here)
        away = folder.with_suffix(".away")
        docker = nodes.access.of(bench.here).docker
        name = f"stopgap-{nodes.site.instance}-{order.ref.job}-1"
        folder.rename(away)
        body = {"CheckpointID": "unseen", "Exit": True}
        try:
            with pytest.raises(EngineSaidError):
                docker.call("POST", f"/containers/{name}/checkpoints", body=body)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            away.rename(folder)

        def goes_on() -> bool:
            return [Phase.RUNNING] == [v.phase for v in bench.engine.survey(bench.here)]

        # For some tenths of a second Docker calls it paused.
        bench.await_(goes_on)

    def test_a_hung_engine_is_unreachable(self, nodes: DockerBench, bench: Bench) -> None:
        """An engine that accepts and never answers costs one time-out, not for ever."""
        access = Access(
            replace(nodes.access.engine, timeout_seconds=0.5),
            nodes.access.nodes,
            nodes.site.instance,
        )
        engine = DockerEngine(access, nodes.site, nodes.keys, nodes.store, nodes.clock)
        dockerd = nodes._bed.process("dockerd", bench.here)
        assert dockerd is not None
        dockerd.kill(signal.SIGSTOP)
        try:
            with pytest.raises(EngineUnreachableError):
                engine.survey(bench.here)
        finally:
            dockerd.kill(signal.SIGCONT)
            access.close()

    def test_a_job_knows_its_own_machine(self, bench: Bench) -> None:
        """Its name and localhost have an address, here and after a move."""
        order = bench.order(Act.COUNT, bench.here)
        names = "grep -cw localhost.*$(hostname) /etc/hosts"
        command = ("sh", "-c", f"while :; do hostname; {names}; sleep 0.05; done")
        order = replace(order, spec=replace(order.spec, command=command))

        placed = bench.engine.place(order)
        bench.await_(lambda: b"".join(bench.engine.logs(order.ref)).count(b"\n") > 2)
        saved = bench.engine.checkpoint(order.ref, deadline_seconds=60)
        later = replace(
            order,
            ref=replace(order.ref, epoch=Epoch(2), node=bench.there),
            generation=saved.checkpoint.generation,
            image_digest=placed.image_digest,
        )
        bench.engine.place(later)
        bench.await_(lambda: b"".join(bench.engine.logs(later.ref)).count(b"\n") > 2)

        lines = b"".join(b"".join(bench.engine.logs(o.ref)) for o in (order, later)).splitlines()
        assert {f"job-{order.ref.job}".encode(), b"1"} == set(lines)

    @pytest.mark.parametrize("frozen", [False, True])
    def test_a_checkpoint_cut_short_leaves_the_job_as_it_was(
        self, bench: Bench, *, frozen: bool
    ) -> None:
        """The deadline passes, the shim is told to stop, and nothing has happened."""
        order = bench.order(Act.COUNT, bench.here)
        slow = ("sh", "-c", f"head -c 40000000 /dev/urandom > /dev/shm/x; {_COUNT}")
        order = replace(order, spec=replace(order.spec, command=slow, memory_mib=128))
        bench.engine.place(order)
        bench.await_(lambda: bool(b"".join(bench.engine.logs(order.ref))))
        if frozen:
            bench.engine.freeze(order.ref)

        with pytest.raises(NotSavedError, match="cancelled") as caught:
            bench.engine.checkpoint(order.ref, deadline_seconds=0.2)

        assert frozen is caught.value.frozen
        assert bench.engine.settled(order.ref) is None
        # The engine undoes its own pause a moment after the shim's receipt.
        phase = Phase.FROZEN if frozen else Phase.RUNNING
        bench.await_(lambda: [phase] == [v.phase for v in bench.engine.survey(bench.here)])
        bench.engine.thaw(order.ref)
        bench.await_(lambda: b"".join(bench.engine.logs(order.ref)).count(b"\n") > 20)
        log = b"".join(bench.engine.logs(order.ref))
        assert b"".join(b"%d\n" % n for n in range(log.count(b"\n"))) == log

    def test_an_engine_behind_ssh_answers(
        self,
        nodes: DockerBench,
        bench: Bench,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Through the node's own docker command, output and all."""
        ssh = tmp_path / "ssh"
        engine = nodes.access.engine.address_of(bench.here)
        ssh.write_text(
            '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\n'
            f'shift 2\nexec "$1" -H {engine} "$2" "$3"\n'
        )
        ssh.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        access = Access(
            replace(nodes.access.engine, address="ssh://{node}"),
            nodes.access.nodes,
            nodes.site.instance,
        )
        far = DockerEngine(access, nodes.site, nodes.keys, nodes.store, nodes.clock)
        order = bench.order(Act.FAIL, bench.here)

        far.place(order)

        assert 10 == b"".join(far.logs(order.ref, follow=True)).count(b"\n")
        assert [3] == [view.exit_code for view in far.survey(bench.here)]
        access.close()

    def test_a_reserved_variable_is_refused(self, bench: Bench) -> None:
        """Nobody speaks to the shim in our name."""
        order = replace(bench.order(Act.COUNT, bench.here), env={"STOPGAP_TICKET": "x.y"})

        with pytest.raises(OrderRefusedError, match="STOPGAP_TICKET"):
            bench.engine.place(order)
