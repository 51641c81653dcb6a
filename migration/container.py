"""From an order to the document that creates its container.  Pure: no engine is asked here.

Most of what is forced keeps a resumed process in the surroundings that it was saved in,
the rest keeps it out of everybody's way.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from daemon.core.types import Mount, NodeName, SegmentRef
from migration.base import OrderRefusedError, StartOrder
from migration.docker import EngineFacts
from migration.settings import Site
from migration.ticket import RESERVED_PREFIX, TICKET_VARIABLE, Keys, Ticket, sign

RUNTIME = "stopgap"
LABEL_INSTANCE = "stopgap.instance"
LABEL_JOB = "stopgap.job"
LABEL_SEGMENT = "stopgap.segment"
LABEL_EPOCH = "stopgap.epoch"

#: The sets of Docker 20.10, given by us: newer engines mask more, each mask is a mount,
#: and a process cannot be resumed among other mounts than its own (FIELD-NOTES B29).
MASKED_PATHS = (
    "/proc/asound",
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
)
READONLY_PATHS = (
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
)

#: The log is part of the job's state: nothing of it may be cut or dropped.  Each option is
#: named, for Docker fills in what is missing from the site's own daemon.json; it has no word
#: for "no limit", so the limit is one that no disk can hold.
_LOG_OPTIONS = {"max-size": "1000000g", "max-file": "1", "compress": "false", "mode": "blocking"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts:
    """What an image says about itself."""

    #: Digest of its content.
    id: str
    env: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()


def container_name(instance: str, ref: SegmentRef) -> str:
    """Return the only name that the segment's container can have on its node."""
    return f"stopgap-{instance}-{ref.job}-{ref.epoch}"


def cgroup_parent(instance: str, ref: SegmentRef, driver: str) -> str:
    """Return the segment's cgroup, as the engine's driver wants it written."""
    if driver != "systemd":
        return f"/stopgap/{instance}/{ref.node}/{ref.job}.{ref.epoch}"
    words = (re.sub(r"[^A-Za-z0-9_.]", "_", word) for word in (instance, str(ref.node)))
    return f"stopgap-{'.'.join(words)}.{ref.job}.{ref.epoch}.slice"


def check_image(name: str, image: ImageFacts) -> None:
    """
    Refuse what cannot move, or would speak in our name.

    Raises:
        OrderRefusedError: with what to change in the image.
    """
    if image.volumes:
        raise OrderRefusedError(
            f"image {name} declares the volume {image.volumes[0]}, whose content would stay "
            "behind when the job moves: build it without VOLUME and mount a directory instead"
        )
    for variable in image.env:
        if variable.startswith(RESERVED_PREFIX):
            raise OrderRefusedError(
                f"image {name} sets {variable.partition('=')[0]}: names that begin with "
                f"{RESERVED_PREFIX} are stopgap's own; build it without that variable"
            )


def make_ticket(order: StartOrder, site: Site, keys: Keys) -> str:
    """Return the signed ticket that the order's container carries."""
    ref = order.ref
    ticket = Ticket(
        instance=site.instance,
        node=ref.node,
        job=ref.job,
        epoch=ref.epoch,
        uid=order.spec.owner.uid,
        name=container_name(site.instance, ref),
        generation=order.generation,
        seen=order.seen.timestamp(),
        expires=(order.seen + timedelta(seconds=site.ticket_seconds)).timestamp(),
        nonce=keys.nonce(NodeName(ref.node), ref.job, ref.epoch),
        roots=site.mounts,
        results=order.spec.results,
        ignored=_ignored(order),
        after_crash=None if order.after_crash is None else order.after_crash.value,
    )
    return sign(ticket, keys.node(ref.node))


def _ignored(order: StartOrder) -> tuple[str, ...]:
    # The copies of logs are the daemon's doing.  A variable of the environment is no longer
    # than 128 KiB, and what is left out only has a person look once more.
    own = () if order.spec.output is None else (order.spec.output,)
    found, room = [], 32768
    for path in (*own, *order.ignored):
        room -= len(path)
        if room > 0:
            found.append(path)
    return tuple(found)


def create_body(
    order: StartOrder, image: ImageFacts, site: Site, engine: EngineFacts, ticket: str
) -> dict[str, Any]:
    """
    Return the document of ``POST /containers/create``.

    Raises:
        OrderRefusedError: the environment holds what no job may set.
    """
    spec = order.spec
    body: dict[str, Any] = {
        "Image": image.id,
        "User": f"{spec.owner.uid}:{spec.owner.gid}",
        "Hostname": site.hostname.replace("{job}", str(order.ref.job)),
        "Env": _environment(order.env, ticket),
        "Labels": {
            LABEL_INSTANCE: site.instance,
            LABEL_JOB: str(order.ref.job),
            LABEL_EPOCH: str(order.ref.epoch),
            LABEL_SEGMENT: f"{order.ref.job}.{order.ref.epoch}",
        },
        "Tty": False,
        "OpenStdin": False,
        "AttachStdin": False,
        "AttachStdout": False,
        "AttachStderr": False,
        "NetworkDisabled": True,
        "Healthcheck": {"Test": ["NONE"]},
        # dockerd that stops must not let a job end as if it had wanted to.
        "StopSignal": "SIGKILL",
        "HostConfig": _host_config(order, site, engine),
    }
    # The image's entrypoint stays: a command replaces CMD, as with ``docker run IMAGE CMD``.
    if spec.command:
        body["Cmd"] = list(spec.command)
    if spec.workdir is not None:
        body["WorkingDir"] = spec.workdir
    return body


def _host_config(order: StartOrder, site: Site, engine: EngineFacts) -> dict[str, Any]:
    spec = order.spec
    memory = spec.memory_mib * 1024 * 1024
    config: dict[str, Any] = {
        "Runtime": RUNTIME,
        "CgroupParent": cgroup_parent(site.instance, order.ref, engine.cgroup_driver),
        # Docker would start the job a second time after its checkpoint, or throw it away.
        "RestartPolicy": {"Name": "no"},
        "AutoRemove": False,
        # Reaps what the job leaves behind, and passes signals on that it does not trap.
        "Init": True,
        "GroupAdd": [str(group) for group in spec.owner.groups],
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "Privileged": False,
        "NetworkMode": "none",
        # Anything but a private /dev/shm would stay on the node.
        "IpcMode": "private",
        "PidMode": "",
        "UsernsMode": "host",
        "MaskedPaths": list(MASKED_PATHS),
        "ReadonlyPaths": list(READONLY_PATHS),
        "Mounts": [_mount(mount) for mount in spec.mounts],
        "Memory": memory,
        "MemorySwap": memory,
        "NanoCpus": spec.cpus * 1_000_000_000,
        "CpuShares": max(2, site.cpu_shares * spec.cpus),
        "PidsLimit": site.pids_limit,
        "OomScoreAdj": site.oom_score_adj,
        "LogConfig": {"Type": "json-file", "Config": dict(_LOG_OPTIONS)},
    }
    if engine.blkio_weight:
        config["BlkioWeight"] = site.blkio_weight
    return config


def _mount(mount: Mount) -> dict[str, Any]:
    return {
        "Type": "bind",
        "Source": mount.source,
        "Target": mount.target,
        "ReadOnly": mount.read_only,
        # An empty directory where the data should be is worse than an error (B28).
        "BindOptions": {"Propagation": "rprivate", "CreateMountpoint": False},
    }


def _environment(env: Mapping[str, str], ticket: str) -> list[str]:
    for name, value in env.items():
        if name.startswith(RESERVED_PREFIX):
            raise OrderRefusedError(
                f"the variable {name} cannot be set: names that begin with {RESERVED_PREFIX} "
                "are stopgap's own"
            )
        if not name or "=" in name or "\0" in name + value:
            raise OrderRefusedError(f"{name!r} is no name of an environment variable")
    # An image made for GPUs would get them from a runtime's hook, and could never be saved (B55).
    ours = {"NVIDIA_VISIBLE_DEVICES": "void", TICKET_VARIABLE: ticket}
    return [f"{name}={value}" for name, value in (dict(env) | ours).items()]
