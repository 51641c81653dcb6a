"""``python -m tests.vm.inside VERB``: one part of the test; its last line is one JSON object."""

import sys
from collections.abc import Callable

from tests.vm.inside import increments, moves, reboot, service
from tests.vm.inside.report import Report

PARTS: dict[str, tuple[Callable[[Report], None], ...]] = {
    "service": (service.engines, service.daemon, service.nodes, service.watchdog),
    "increments": (increments.chain, increments.packed_chain),
    "move": (moves.back_and_forth,),
    "restart": (moves.after_restart,),
    "before": (reboot.before,),
    "after": (reboot.after,),
}


def main() -> int:
    """Run the part that was asked for."""
    (verb,) = sys.argv[1:]
    report = Report()
    for step in PARTS[verb]:
        try:
            step(report)
        except Exception as exc:  # noqa: BLE001  # whatever it is, the host is to read it
            name = f"{verb}: {step.__name__}"
            report.check(name, holds=False, error=f"{type(exc).__name__}: {exc}")
            break
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
