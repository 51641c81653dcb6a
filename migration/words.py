"""What an engine's or a shim's words mean for an order.  Pure text, no engine is asked.

Docker's messages are no interface; each pattern names the versions in which it was read.
Whatever is not recognised blames the node, never the job.
"""

from migration.base import (
    ChangedFilesError,
    EngineError,
    NodeUnfitError,
    NotResumableError,
    OrderRefusedError,
    StartOrder,
)
from migration.docker import EngineSaidError
from migration.manifest import ResumeReceipt

#: The shim's reason that is about what the submitter mounts.
_ASTRAY = "which no job may mount"
PROLOG_CAME = "a prolog has claimed"
CHANGED = "files of the job have changed"
#: The shim's reasons that are about the node and not about the generation.
_SHIM_NODE_REASONS = (PROLOG_CAME, "cancelled:", "the ticket", "No space left")


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


def missing_image(order: StartOrder) -> EngineError:
    """Say that the node does not have the image."""
    image, node = order.spec.image, order.ref.node
    if order.image_digest is None:
        return OrderRefusedError(
            f"there is no image {image} on {node}: load or pull it there, or correct its name"
        )
    return NodeUnfitError(f"{node} does not have image {image} as {order.image_digest}")


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
                f"{order.ref.node}: {why}"
            )
        words = why
    return NodeUnfitError(f"{order.ref.node} did not start the job: {words}")


def _last_words(words: str) -> str:
    """Take containerd's and runc's preambles off the shim's own line."""
    _, found, rest = words.partition("stopgap: ")
    return rest.removesuffix(": unknown") if found else words
