"""Setting up and probing real nodes, through their engines alone."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.clock import SystemClock
from daemon.core.types import NodeName, Owner
from migration.access import Access
from migration.base import NodeUnfitError
from migration.engine import DockerEngine
from migration.manifest import ROOT_MARK
from migration.nodes import NodeSetup, StepState
from migration.probe import ROUNDS, Prober
from migration.settings import EngineSettings, NodeSettings, Site
from migration.stores.shared import SharedStore
from migration.ticket import Keys
from tests.testbed import Bed

pytestmark = pytest.mark.bed

NODE = NodeName("n1")
#: CAP_SYS_RESOURCE, without which CRIU cannot save other users' processes.
_SYS_RESOURCE = 1 << 24


class Kit:
    """What works on the nodes of a bed."""

    def __init__(self, bed: Bed) -> None:
        layout = bed.layout
        clock, keys = SystemClock(), Keys(b"k" * 32)
        self.clock = clock
        site = Site(instance=layout.instance)
        self.bed = bed
        self.access = Access(
            EngineSettings(address=f"unix://{layout.root}/nodes/{{node}}/docker.sock"),
            NodeSettings(
                install_dir=f"{layout.root}/nodes/{{node}}/stopgap",
                daemon_json=f"{layout.root}/nodes/{{node}}/daemon.json",
                pidfile=f"{layout.root}/nodes/{{node}}/docker.pid",
                path=layout.node_path,
                checkpoints=str(layout.checkpoints),
            ),
            layout.instance,
        )
        store = SharedStore(layout.checkpoints, layout.instance, keys.site)
        store.claim(layout.state / "checkpoints.root")
        self.setup = NodeSetup(self.access, keys, layout.instance, clock)
        self.engine = DockerEngine(self.access, site, keys, store, clock)
        self.prober = Prober(self.access, site, keys, store, clock)

    def states(self, *, dry_run: bool = False) -> set[StepState]:
        return {step.state for step in self.setup.setup(NODE, dry_run=dry_run)}


@pytest.fixture
def kit(own_bed: Bed) -> Iterator[Kit]:
    kit = Kit(own_bed)
    yield kit
    kit.access.close()


def test_a_node_is_set_up_once(kit: Kit) -> None:
    """First it is told what would be done, then it is done, then there is nothing to do."""
    daemon_json = kit.bed.layout.node(NODE) / "daemon.json"
    before = json.loads(daemon_json.read_text())
    with pytest.raises(NodeUnfitError, match="stopgap node setup n1"):
        kit.engine.census(NODE)

    assert StepState.DONE not in kit.states(dry_run=True)
    assert before == json.loads(daemon_json.read_text())
    assert not kit.bed.layout.install_dir(NODE).exists()

    assert StepState.DONE in kit.states()
    assert {StepState.ALREADY} == kit.states()

    after = json.loads(daemon_json.read_text())
    assert before == {key: after[key] for key in before}
    assert () == kit.engine.census(NODE).segments
    assert "" == kit.bed.docker(NODE, "ps", "--all", "--quiet")


def test_what_was_changed_is_put_right(kit: Kit) -> None:
    """A file of another version, or one that others could read."""
    kit.setup.setup(NODE)
    folder = kit.bed.layout.install_dir(NODE)
    (folder / "stopgap-runc").write_text("#!/bin/sh\n")
    (folder / "node.key").chmod(0o644)

    done = [s.text for s in kit.setup.setup(NODE) if s.state is StepState.DONE]

    assert [f"{folder}/{name} is in place" for name in ("stopgap-runc", "node.key")] == done
    assert {StepState.ALREADY} == kit.states()


def test_a_configuration_that_cannot_be_read_is_left_alone(kit: Kit) -> None:
    """The step that failed is the last, and says why."""
    daemon_json = kit.bed.layout.node(NODE) / "daemon.json"
    daemon_json.write_text("{broken")

    last = kit.setup.setup(NODE)[-1]

    assert StepState.FAILED is last.state
    assert str(daemon_json) in last.text
    assert "{broken" == daemon_json.read_text()


def test_the_canary_comes_through(kit: Kit) -> None:
    """Three times, and the probe says for whom this holds."""
    kit.setup.setup(NODE)
    fingerprint = kit.setup.fingerprint(NODE)

    probe = kit.prober.probe(NODE)

    assert probe.passed, probe.reason
    assert ROUNDS == probe.rounds
    assert all(r.checkpoint_seconds > 0 < r.resume_seconds for r in probe.figures)
    assert _can_save_others() is probe.other_users
    assert probe.other_users or "CAP_SYS_RESOURCE" in probe.reason
    assert all((fingerprint.engine, fingerprint.kernel, fingerprint.runc, fingerprint.criu))
    assert (" sd" in Path("/proc/self/smaps").read_text()) is fingerprint.incremental
    assert kit.engine.census(NODE).boot_id == fingerprint.boot_id
    assert "" == kit.bed.docker(NODE, "ps", "--all", "--quiet")
    assert [ROOT_MARK] == [path.name for path in kit.bed.checkpoints.iterdir()]
    assert {} == kit.bed.cgroup_processes(NODE)


def test_a_canary_that_was_left_behind_is_cleared_away(kit: Kit) -> None:
    """A daemon that was killed in the middle of a probe leaves nothing running for good."""
    kit.setup.setup(NODE)
    prober = kit.prober
    prober._import_image(kit.access.of(NODE))
    prober._engine.place(prober._order(NODE, Owner(uid=0, gid=0), kit.clock.now()))
    assert kit.bed.cgroup_processes(NODE)

    prober.clear(NODE)

    assert {} == kit.bed.cgroup_processes(NODE)
    assert "" == kit.bed.docker(NODE, "ps", "--all", "--quiet")


def _can_save_others() -> bool:
    with open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123  # one line of it
        mask = next(line for line in status if line.startswith("CapBnd")).split()[1]
    return bool(int(mask, 16) & _SYS_RESOURCE)
