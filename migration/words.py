"""What the words of an engine, of the shim and of CRIU mean.  Pure text, nobody is asked.

Messages are no interface; each pattern names the versions in which it was read.
Whatever is not recognised blames the node, never the job.
"""

import re

from migration.base import (
    ChangedFilesError,
    EngineError,
    NodeUnfitError,
    NotResumableError,
    OrderRefusedError,
    StartOrder,
)
from migration.docker import EngineSaidError
from migration.manifest import ResumeReceipt, one_line

#: The shim's reason that is about what the submitter mounts.
_ASTRAY = "which no job may mount"
PROLOG_CAME = "a prolog has claimed"
CHANGED = "files of the job have changed"
#: The shim's reasons that are about the node and not about the generation.
_SHIM_NODE_REASONS = (
    PROLOG_CAME,
    "cancelled:",
    "the ticket",
    "No space left",
    "has no zstd",
    "scratch directory",
)

#: CRIU's reasons in plain words, the first that fits.  Read in 4.2.1.
_PLAIN = {
    r"unix: (Dangling connection|Unix socket \S+ without peer|External socket is used)": (
        "a unix socket of the job's is connected to a process outside of it: close that "
        "connection, or do not mount the socket"
    ),
    r"Can't dump half of stream unix connection": (
        "a unix socket of the job's is connected to a process outside of it"
    ),
    r"In-flight connection": (
        "a connection within the job waits to be accepted; at another moment it may do"
    ),
    r"Connected TCP socket|Can't bind inet socket back": (
        "a TCP connection to a machine outside of the job is open"
    ),
    r"Can't dump ghost file": "a deleted file that is still open is larger than the limit",
    r"file locks are hold by dumping tasks": (
        "it holds a file lock that a process outside of the job shares"
    ),
    r"Can't lookup mount=\S+ for fd=\S+ path=": (
        "it has a file open that lies on none of its file systems, such as a POSIX message queue"
    ),
    r"fsnotify: \s*Can't dump that handle": (
        "it watches (inotify) a file whose name cannot be found any more"
    ),
    r"SysVIPC shmem map \S+ doesn't live in IPC ns": (
        "it shares System V memory with processes outside of the job"
    ),
    r"tty: (Found slave peer|Unable to find a master)|Found dangling tty": (
        "it uses a terminal that belongs to somebody outside of the job"
    ),
    r"/dev/(nvidia|kfd|dri)|unreachable sharing": "it uses a GPU, which CRIU cannot save here",
    r"Can't handle non-regular mapping|handle_device_vma plugin failed": (
        "it has the memory of a device mapped, such as a network adapter's"
    ),
    r"Can't dump file \S+ of that type.*anon_inode:\[?(?P<what>\w+)": (
        "it uses {what}, which CRIU cannot save"
    ),
    r"Unseizable non-zombie|Timeout reached. Try to interrupt|does not freeze within": (
        "a process does not stop: it waits for a disk or a file server; at another moment it may do"
    ),
    r"Can't create link remap for \S*/\.nfs": (
        "a file on NFS was deleted while it was open: delete such files after they are closed"
    ),
    r"Can't get rlimit": "CRIU lacks CAP_SYS_RESOURCE on this node",
    r'failed to find criu|exec: "criu"|CRIU does not run': (
        "there is no CRIU on this node, or not in nodes.path"
    ),
    r"scratch directory (?P<what>\S+) is full": "{what} of the node is full (nodes.scratch_dir)",
    r"(?i)no space left on device": "the file system of the checkpoints is full",
    r"(?i)disk quota exceeded": "the quota of the checkpoints' file system is used up",
    # Of a resume.
    r"File (?P<what>\S+) has bad size": "its file {what} has another size than when it was saved",
    r"Can't open file (?P<what>\S+) on restore": "its file {what} is not there any more",
    r"Can't fork for \d+: File exists": "the number of one of its processes is taken",
    r"mnt: No mapping for (?P<what>\S+) mountpoint": (
        "this node does not mount {what}, which was mounted when it was saved"
    ),
}


def plain(reason: str) -> str:
    """Put what CRIU means before what it says; other reasons stay as they are, on one line."""
    reason = one_line(reason)
    for pattern, words in _PLAIN.items():
        found = re.search(pattern, reason)
        told = words.format(**found.groupdict()) if found else ""
        if told:
            # Whoever passes a reason on may put it so once more.
            return reason if reason.startswith(told) else f"{told} ({_first_error(reason)})"
    return reason


def _first_error(reason: str) -> str:
    """Return CRIU's first error line, without its time; the whole reason when there is none."""
    at = reason.find("Error (criu/")
    return reason if at < 0 else reason[at:].partition("; (")[0]


def refused_create(said: EngineSaidError, order: StartOrder) -> EngineError:
    """Sort an error of ``create``."""
    words = said.words
    # 20.10: "Unknown runtime specified stopgap"; 23 to 29: "unknown or invalid runtime name".
    if "runtime" in words.lower() and "unknown" in words.lower():
        node = order.ref.node
        return NodeUnfitError(f"{node} does not know the runtime: run 'stopgap node setup {node}'")
    for mount in order.spec.mounts:
        # 20.10 to 29: "invalid mount config for type "bind": bind source path does not exist: …".
        if "bind source path does not exist" in words and mount.source in words:
            return OrderRefusedError(
                f"the mount's source {mount.source} does not exist on {order.ref.node}; "
                "mounts must lie on a file system that all nodes share"
            )
    if said.status == 400:
        return OrderRefusedError(f"Docker refuses the job: {words}")
    return NodeUnfitError(f"{order.ref.node} could not create the container: {words}")


def missing_image(order: StartOrder, *, anywhere: bool = False) -> EngineError:
    """Say that the node does not have the image; ``anywhere``: nor does any node that answers."""
    image, node = order.spec.image, order.ref.node
    others = ", nor on any other node that answers" if anywhere else ""
    if order.image_digest is None:
        return OrderRefusedError(
            f"there is no image {image} on {node}{others}: load or pull it there, or correct its "
            "name"
        )
    return NodeUnfitError(f"{node} does not have image {image} as {order.image_digest}{others}")


def refused_start(
    said: EngineSaidError, order: StartOrder, receipt: ResumeReceipt | None
) -> EngineError:
    """Sort an error of ``start``, with what the shim wrote down about a resume."""
    words = _last_words(said.words)
    if order.generation is None and _ASTRAY in words:
        return OrderRefusedError(words)
    if order.generation is not None and receipt is not None and not receipt.ok:
        why = receipt.why
        if receipt.changed and CHANGED in why:
            return ChangedFilesError(why, files=receipt.changed)
        if not any(reason in why for reason in _SHIM_NODE_REASONS):
            return NotResumableError(
                f"generation {order.generation} of job {order.ref.job} cannot be resumed on "
                f"{order.ref.node}: {plain(why)}"
            )
        words = why
    return NodeUnfitError(f"{order.ref.node} did not start the job: {words}")


def _last_words(words: str) -> str:
    """Take containerd's and runc's preambles off the shim's own line."""
    _, found, rest = words.partition("stopgap: ")
    return rest.removesuffix(": unknown") if found else words
