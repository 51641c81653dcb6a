"""What a site decides about its nodes, as frozen values.  The configuration builds them."""

from dataclasses import dataclass
from enum import StrEnum

from daemon.core.types import NodeName


class ImageSource(StrEnum):
    """From where a node gets the image of a job when it lacks it."""

    #: By digest from the registry that it was pulled from, otherwise from another node.
    REGISTRY = "registry"
    #: From another node.
    NODES = "nodes"
    NOWHERE = "nowhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How engines are reached, and for how long."""

    #: unix://, tcp:// or ssh://; {node} stands for the node's name.
    address: str
    #: For an ordinary call.
    timeout_seconds: float = 30.0
    #: For opening a connection, the first version question included.
    connect_seconds: float = 5.0
    #: For a start with a resume; the shim's own deadline lies within it.
    resume_seconds: float = 600.0
    #: Folder with ca.pem, cert.pem and key.pem for tcp://; empty is no TLS.
    cert_dir: str = ""
    images: ImageSource = ImageSource.REGISTRY

    def address_of(self, node: NodeName) -> str:
        """Return the node's own address."""
        return at(self.address, node)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """Where things are on a node, and what its shim is told.  Paths may hold {node}."""

    install_dir: str = "/opt/stopgap"
    daemon_json: str = "/etc/docker/daemon.json"
    pidfile: str = "/var/run/docker.pid"
    #: PATH in which runc, CRIU and tar are found; empty is the system's.
    path: str = ""
    #: Root of the checkpoints, as the nodes see it.
    checkpoints: str = "/var/lib/stopgap/checkpoints"
    #: Each node has a root of its own, and nobody else sees what is in it.
    own_checkpoints: bool = False
    checkpoint_seconds: float = 600.0
    resume_seconds: float = 600.0
    #: ``none`` or ``zstd``, and its level.
    compress: str = "none"
    compress_level: int = 1
    #: Where a node has images as CRIU reads and writes them, when they are kept compressed.
    scratch_dir: str = "/var/lib/stopgap/scratch"
    #: How prologs reach the daemon; empty is nobody to tell.
    hook_url: str = ""
    hook_seconds: float = 60.0
    hook_unreachable_seconds: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What is the same in every container of this installation."""

    instance: str
    #: Directories that jobs may mount, with everything below.
    mounts: tuple[str, ...] = ()
    #: Fixed per job: a resumed process keeps the name that it was started with.
    hostname: str = "job-{job}"
    #: For each core of a job; the kernel's smallest, so that anybody else goes first.
    cpu_shares: int = 2
    blkio_weight: int = 10
    pids_limit: int = 4096
    #: The kernel's OOM killer takes ours before a priority job.
    oom_score_adj: int = 900
    #: How long a ticket may wait for its engine.
    ticket_seconds: float = 300.0


def at(template: str, node: NodeName) -> str:
    """Fill in the node's name."""
    return template.replace("{node}", node)
