"""Where a checkpoint can be resumed: what its machine had is what the next one must have.

One rule for whoever chooses a node.  The shim on the node applies the same rule again and
has the last word, for it looks at the machine itself.
"""

from collections.abc import Iterable
from hashlib import sha256

from daemon.core.types import Job, Machine


def misfit(there: Machine, here: Machine) -> str:
    """Say why what was saved on one machine cannot go on on another; empty if it can."""
    for name, was, is_ in (
        ("architecture", there.architecture, here.architecture),
        ("cgroup version", there.cgroup, here.cgroup),
    ):
        if was != is_:
            return f"its {name} is {is_ or 'not known'}, the checkpoint's {was or 'not known'}"
    # Programs choose their instructions when they start, and keep to them.
    missing = there.cpu - here.cpu
    if missing:
        return f"its processor lacks {' '.join(sorted(missing)[:10])}"
    # Images are not forward compatible: 4.1.1 reads those of 4.2 as empty, without an error.
    if not here.criu or _numbers(here.criu) < _numbers(there.criu):
        return f"its CRIU is {here.criu or 'not there'}, the checkpoint is of {there.criu}"
    return ""


def kind(machine: Machine) -> str:
    """Return a short name for processors with exactly these flags."""
    return sha256(" ".join(sorted(machine.cpu)).encode()).hexdigest()[:16]


def unfit(job: Job, here: Machine | None) -> str:
    """Say why the job's generation cannot go on on a machine; empty if it can, or has none."""
    if job.generation is None:
        return ""
    if here is not None and job.avoid and kind(here) in job.avoid:
        return "an illegal instruction ended it on such a processor"
    if job.machine is None:
        # Of an older stopgap; the node itself will tell.
        return ""
    return misfit(job.machine, here) if here is not None else "it is not known what it has"


def nowhere(job: Job, machines: Iterable[Machine | None]) -> str:
    """Say why the job's generation fits none of these machines; empty if it fits one."""
    reasons = {machine: unfit(job, machine) for machine in machines}
    if not reasons or not all(reasons.values()):
        return ""
    if job.machine is not None and any("lacks" in reason for reason in reasons.values()):
        needed, found = job.machine.cpu, [m.cpu for m in reasons if m is not None]
        fewest = min(len(needed - cpu) for cpu in found)
        nearest = next(needed - cpu for cpu in found if len(needed - cpu) == fewest)
        return f"no node fits: needs cpu flag {' '.join(sorted(nearest)[:10])}"
    return f"no node fits: {min(reasons.values())}"


class Kinds:
    """The different machines among the nodes, numbered: many nodes are alike."""

    def __init__(self) -> None:
        self._numbers: dict[Machine | None, int] = {}
        self._known: dict[tuple[Machine | None, tuple[str, ...]], frozenset[int]] = {}

    def number(self, machine: Machine | None) -> int:
        """Return the number of a machine like this one."""
        return self._numbers.setdefault(machine, len(self._numbers))

    def fitting(self, job: Job) -> frozenset[int] | None:
        """Return the numbers that the job's generation fits; None is every one."""
        if job.generation is None or (job.machine is None and not job.avoid):
            return None
        key = (job.machine, job.avoid)
        if key not in self._known:
            fits = (n for machine, n in self._numbers.items() if not unfit(job, machine))
            self._known[key] = frozenset(fits)
        return self._known[key]


def _numbers(version: str) -> tuple[int, ...]:
    head = version.partition("+")[0].partition("-")[0]
    return tuple(int(part) for part in head.split(".") if part.isdigit())
