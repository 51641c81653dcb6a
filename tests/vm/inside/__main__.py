"""``python -m tests.vm.inside VERB``: one part of the test; its last line is one JSON object."""

import sys
from collections.abc import Callable

from tests.testbed.waiting import TookTooLongError
from tests.vm.inside import moves, reboot, service
from tests.vm.inside.report import Report

PARTS: dict[str, tuple[Callable[[Report], None], ...]] = {
    "service": (service.engines, service.daemon, service.nodes, service.watchdog),
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
        except (AssertionError, TookTooLongError) as exc:
            report.check(f"{verb}: {step.__name__}", holds=False, error=str(exc))
            break
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
