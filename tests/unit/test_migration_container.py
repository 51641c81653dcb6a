"""The document that creates a container: what is forced, whoever asks."""

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from daemon.core.types import Epoch, Generation, JobId, JobSpec, Mount, NodeName, Owner, SegmentRef
from migration.base import OrderRefusedError, StartOrder
from migration.container import (
    ImageFacts,
    cgroup_parent,
    check_image,
    container_name,
    create_body,
    make_ticket,
)
from migration.docker import EngineFacts
from migration.settings import Site
from migration.ticket import Keys, read

SITE = Site(instance="site")
KEYS = Keys(b"m" * 32)
IMAGE = ImageFacts(id="sha256:abc")
ENGINE = EngineFacts(
    version="28.5.2",
    cgroup_driver="cgroupfs",
    experimental=True,
    blkio_weight=True,
)
REF = SegmentRef(job=JobId(7), epoch=Epoch(3), node=NodeName("n1"))
ORDER = StartOrder(
    ref=REF,
    spec=JobSpec(
        name="job",
        owner=Owner(uid=1000, gid=100, groups=(100, 4)),
        image="app:latest",
        command=("run", "--fast"),
        cpus=2,
        memory_mib=512,
        mounts=(Mount(source="/shared/a", target="/a", read_only=True),),
        workdir="/a",
    ),
    env={"KEY": "value=1"},
    image_digest=None,
    seen=datetime(2026, 1, 1, tzinfo=UTC),
)


def test_nothing_that_runs_away_or_twice() -> None:
    """No restart, no removal behind our back, no terminal, no health check, no gentle stop."""
    body = create_body(ORDER, IMAGE, SITE, ENGINE, "ticket")
    host = body["HostConfig"]

    assert {"Name": "no"} == host["RestartPolicy"]
    assert not host["AutoRemove"]
    assert not body["Tty"]
    assert not body["OpenStdin"]
    assert {"Test": ["NONE"]} == body["Healthcheck"]
    assert "SIGKILL" == body["StopSignal"]
    assert "stopgap" == host["Runtime"]


def test_the_job_is_its_submitter_and_no_more() -> None:
    """Neither capabilities nor other ids, whatever the image says."""
    body = create_body(ORDER, IMAGE, SITE, ENGINE, "ticket")
    host = body["HostConfig"]

    assert "1000:100" == body["User"]
    assert ["100", "4"] == host["GroupAdd"]
    assert ["ALL"] == host["CapDrop"]
    assert "CapAdd" not in host
    assert ["no-new-privileges"] == host["SecurityOpt"]
    assert not host["Privileged"]
    assert ("private", "", "host") == (host["IpcMode"], host["PidMode"], host["UsernsMode"])
    assert body["NetworkDisabled"]
    assert "none" == host["NetworkMode"]


def test_resources_are_limited_and_anybody_else_goes_first() -> None:
    """Memory without swap, the cores asked for, the lowest weights."""
    host = create_body(ORDER, IMAGE, SITE, ENGINE, "ticket")["HostConfig"]

    assert 512 * 2**20 == host["Memory"] == host["MemorySwap"]
    assert 2_000_000_000 == host["NanoCpus"]
    assert 4 == host["CpuShares"]
    assert 10 == host["BlkioWeight"]
    assert 900 == host["OomScoreAdj"]
    assert 0 < host["PidsLimit"]
    assert "CpusetCpus" not in host


def test_what_the_kernel_lacks_is_not_asked_for() -> None:
    """Some have no weight for block devices."""
    engine = replace(ENGINE, blkio_weight=False)

    assert "BlkioWeight" not in create_body(ORDER, IMAGE, SITE, engine, "")["HostConfig"]


def test_a_missing_mount_is_not_made_up() -> None:
    """Long form, never an empty directory instead of the data."""
    host = create_body(ORDER, IMAGE, SITE, ENGINE, "ticket")["HostConfig"]

    (mount,) = host["Mounts"]
    assert ("bind", "/shared/a", "/a", True) == tuple(
        mount[key] for key in ("Type", "Source", "Target", "ReadOnly")
    )
    assert not mount["BindOptions"]["CreateMountpoint"]
    assert "Binds" not in host


def test_the_surroundings_are_the_same_on_every_node() -> None:
    """Host name per job, image by digest, the mounts over /proc by us."""
    body = create_body(ORDER, IMAGE, SITE, ENGINE, "ticket")
    host = body["HostConfig"]

    assert "job-7" == body["Hostname"]
    assert "sha256:abc" == body["Image"]
    assert "/proc/kcore" in host["MaskedPaths"]
    assert "/proc/interrupts" not in host["MaskedPaths"]
    assert "/proc/sys" in host["ReadonlyPaths"]
    assert "json-file" == host["LogConfig"]["Type"]
    assert "1" == host["LogConfig"]["Config"]["max-file"]


def test_a_command_replaces_the_images_own_as_docker_run_does() -> None:
    """The entrypoint is left to the image; no command leaves CMD to it too."""
    plain = replace(ORDER, spec=replace(ORDER.spec, command=()))

    assert ["run", "--fast"] == create_body(ORDER, IMAGE, SITE, ENGINE, "")["Cmd"]
    assert "Entrypoint" not in create_body(ORDER, IMAGE, SITE, ENGINE, "")
    assert "Cmd" not in create_body(plain, IMAGE, SITE, ENGINE, "")


def test_labels_name_the_segment() -> None:
    """A survey finds it again without asking anything else."""
    labels = create_body(ORDER, IMAGE, SITE, ENGINE, "")["Labels"]

    assert {
        "stopgap.instance": "site",
        "stopgap.job": "7",
        "stopgap.epoch": "3",
        "stopgap.segment": "7.3",
    } == labels


def test_there_is_exactly_one_ticket() -> None:
    """And the user's own variables, as they are."""
    env = create_body(ORDER, IMAGE, SITE, ENGINE, "the-ticket")["Env"]

    assert ["STOPGAP_TICKET=the-ticket"] == [e for e in env if e.startswith("STOPGAP")]
    assert "KEY=value=1" in env
    assert "NVIDIA_VISIBLE_DEVICES=void" in env


@pytest.mark.parametrize("name", ["STOPGAP_TICKET", "STOPGAP_", "STOPGAP_ANYTHING", "A=B", "A\0B"])
def test_reserved_and_impossible_variables_are_refused(name: str) -> None:
    """With the name in the message."""
    order = replace(ORDER, env={name: "x"})

    with pytest.raises(OrderRefusedError, match=re.escape(repr(name)[1:-1])):
        create_body(order, IMAGE, SITE, ENGINE, "")


def test_an_image_may_neither_hold_volumes_nor_speak_for_us() -> None:
    """The message says what to change."""
    with pytest.raises(OrderRefusedError, match=r"/data.*without VOLUME"):
        check_image("app", replace(IMAGE, volumes=("/data",)))
    with pytest.raises(OrderRefusedError, match="STOPGAP_TICKET"):
        check_image("app", replace(IMAGE, env=("PATH=/bin", "STOPGAP_TICKET=x")))
    check_image("app", replace(IMAGE, env=("PATH=/bin",)))


def test_a_ticket_says_what_the_order_says() -> None:
    """Signed for the node, with the container's name and the generation."""
    order = replace(ORDER, generation=Generation(2))

    ticket = read(make_ticket(order, SITE, KEYS), KEYS.node(REF.node))

    assert (7, 3, 1000, 2) == (ticket.job, ticket.epoch, ticket.uid, ticket.generation)
    assert ("site", "n1") == (ticket.instance, ticket.node)
    assert container_name("site", REF) == ticket.name
    assert ORDER.seen.timestamp() == ticket.seen
    assert ticket.seen < ticket.expires


def test_copies_of_logs_are_not_the_jobs_doing() -> None:
    """Its own and those of others; so many of them as a ticket can hold."""
    others = tuple(f"/shared/{number:0100}" for number in range(1000))
    order = replace(ORDER, spec=replace(ORDER.spec, output="/shared/log"), ignored=others)

    ticket = read(make_ticket(order, SITE, KEYS), KEYS.node(REF.node))

    assert ("/shared/log", *others[:200]) == ticket.ignored[:201]
    assert len(make_ticket(order, SITE, KEYS)) < 131072 - 1024


def test_each_segment_has_a_cgroup_of_its_own() -> None:
    """As a path, or as a slice whose name systemd does not take apart."""
    assert "/stopgap/site/n1/7.3" == cgroup_parent("site", REF, "cgroupfs")
    assert "stopgap-site.n1.7.3.slice" == cgroup_parent("site", REF, "systemd")
    odd = replace(REF, node=NodeName("rack-1/n1"))
    assert "stopgap-a_b.rack_1_n1.7.3.slice" == cgroup_parent("a-b", odd, "systemd")
