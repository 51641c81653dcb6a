"""What Slurm's words for the state of a node mean to us.

``scontrol show node`` prints one base word and every flag that is set
(``node_state_flags`` in Slurm's src/common/slurm_protocol_defs.c; sinfo(1), NODE
STATE CODES).  Whatever is not in these tables is not known, and not used.
"""

from collections.abc import Mapping
from types import MappingProxyType

from daemon.core.types import ClaimSource, NodeState

BASES: Mapping[str, NodeState] = MappingProxyType(
    {
        "IDLE": NodeState.IDLE,
        "ALLOCATED": NodeState.BUSY,
        "MIXED": NodeState.BUSY,
        "DOWN": NodeState.UNAVAILABLE,
        "ERROR": NodeState.UNAVAILABLE,
        "FUTURE": NodeState.UNAVAILABLE,
        # A controller that has just started says this of every node, jobs or not.
        "UNKNOWN": NodeState.UNKNOWN,
    }
)

#: Say how a node came into the configuration, nothing about its use.
HARMLESS = frozenset({"CLOUD", "DYNAMIC_NORM"})

#: The node is set aside for a job that waits.  Neither free nor in use.
PLANNED = "PLANNED"

#: Priority jobs hold the node, whatever the base word says.
HOLDING = frozenset({"COMPLETING", "BLOCKED"})

#: Nobody may start there.
CLOSED = frozenset(
    {
        "DRAIN",
        "DYNAMIC_FUTURE",
        "EXTERNAL",
        "FAIL",
        "INVALID_REG",
        "MAINTENANCE",
        "NOT_RESPONDING",
        "PERFCTRS",
        "POWERED_DOWN",
        "POWERING_DOWN",
        "POWERING_UP",
        "POWER_DOWN",
        "POWER_DRAIN",
        "POWER_UP",
        "REBOOT_CANCELED",
        "REBOOT_ISSUED",
        "REBOOT_REQUESTED",
        "RESERVED",
        "RESUME",
        "UNDRAIN",
    }
)

#: Flags that say that somebody wants the node, and how to put that to people.
WANTED: Mapping[str, tuple[ClaimSource, str]] = MappingProxyType(
    {
        "BLOCKED": (ClaimSource.ALLOCATED, "blocked by a job that holds its topology block"),
        "DRAIN": (ClaimSource.DRAINING, "drained"),
        "FAIL": (ClaimSource.DRAINING, "expected to fail"),
        "MAINTENANCE": (ClaimSource.RESERVED, "maintenance"),
        # Power saving takes an idle node away under our feet (slurm.conf(5), SuspendTime).
        "POWERING_DOWN": (ClaimSource.DRAINING, "being switched off"),
        "POWER_DOWN": (ClaimSource.DRAINING, "to be switched off"),
        "POWER_DRAIN": (ClaimSource.DRAINING, "to be switched off"),
        "REBOOT_ISSUED": (ClaimSource.DRAINING, "to be rebooted"),
        "REBOOT_REQUESTED": (ClaimSource.DRAINING, "to be rebooted"),
        "RESERVED": (ClaimSource.RESERVED, "reserved"),
    }
)

#: Jobs in these states hold no node (squeue(1), JOB STATE CODES).  Every other word,
#: known or not, holds the nodes that are listed with it.
ENDED = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    }
)
WAITING = "PENDING"


def judge(words: str, *, held: bool = False) -> NodeState:
    """
    Return what a state such as ``IDLE+DRAIN`` means; what is not known is UNKNOWN.

    Args:
        held: priority jobs hold something of the node, whatever the words say.
    """
    base, *flags = words.split("+")
    state, named = BASES.get(base, NodeState.UNKNOWN), set(flags) - HARMLESS
    if state is NodeState.UNKNOWN or not named <= CLOSED | HOLDING | {PLANNED}:
        return NodeState.UNKNOWN
    if named & CLOSED:
        return NodeState.UNAVAILABLE
    if state is NodeState.IDLE and (held or named & HOLDING):
        return NodeState.BUSY
    if state is NodeState.IDLE and named:
        return NodeState.UNAVAILABLE
    return state


def wanted(words: str) -> Mapping[ClaimSource, str]:
    """Return who wants a node according to its flags, and how to put that to people."""
    found: dict[ClaimSource, str] = {}
    for flag in words.split("+")[1:]:
        if flag in WANTED:
            source, said = WANTED[flag]
            found[source] = f"{found[source]}, {said}" if source in found else said
    return found
