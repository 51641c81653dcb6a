"""Where a checkpoint can be resumed: what its machine had is what the next one must have.

One rule for whoever chooses a node.  The shim on the node applies the same rule again and
has the last word, for it looks at the machine itself.
"""

from daemon.core.types import Machine


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


def _numbers(version: str) -> tuple[int, ...]:
    head = version.partition("+")[0].partition("-")[0]
    return tuple(int(part) for part in head.split(".") if part.isdigit())
