"""Plays the demo on a bed of its own: ``python -m tests.demo``.

What happens is shown on stderr; the last line on stdout is the result.
"""

import argparse
import json
import shutil
import signal
import sys
from types import FrameType
from typing import Any

from daemon.api.client import ClientError
from tests.demo.commands import CommandError
from tests.demo.driver import EndedTooSoonError
from tests.demo.scenario import DemoError, Scenario, Size
from tests.demo.view import View, view
from tests.testbed import Bed, BedError, PartError, missing
from tests.testbed.paths import CACHE

_ERRORS = (BedError, ClientError, CommandError, DemoError, EndedTooSoonError, PartError)
_KEPT = CACHE / "demo-log"


def main() -> int:
    """Play it and return the exit status: 0 when everything holds."""
    parser = argparse.ArgumentParser(prog="python -m tests.demo", description=__doc__)
    usual = Size()
    parser.add_argument("--moves", type=int, default=usual.moves, help="of every job, at least")
    parser.add_argument("--seconds", type=float, default=usual.seconds, help="of each program")
    asked = parser.parse_args()
    if reasons := missing():
        print("\n".join(reasons), file=sys.stderr)
        return 1
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    return _play(Size(moves=asked.moves, seconds=asked.seconds))


def _interrupt(number: int, _frame: FrameType | None) -> None:
    """End in order, once: what comes while everything is put away would leave half of it."""
    for other in (signal.SIGINT, signal.SIGTERM):
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _play(size: Size) -> int:
    """What is said last is said when everything has been put away."""
    with view() as shown, Bed.start(nodes=4) as bed:
        try:
            document = _judge(bed, shown, size)
        except BaseException:
            _keep_logs(bed, shown)
            raise
        for line in document["failed"]:
            shown.say(f"FAILED: {line}")
        if document["failed"]:
            _keep_logs(bed, shown)
    print(json.dumps(document), flush=True)
    return 1 if document["failed"] else 0


def _judge(bed: Bed, shown: View, size: Size) -> dict[str, Any]:
    shown.say(f"Slurm, four Docker engines and CRIU are up at {bed.root}")
    try:
        return Scenario(bed, shown, size).play().document()
    except _ERRORS as exc:
        return {"failed": [str(exc)]}


def _keep_logs(bed: Bed, shown: View) -> None:
    shutil.rmtree(_KEPT, ignore_errors=True)
    shutil.copytree(bed.layout.logs, _KEPT)
    shown.say(f"the logs of all parts are kept in {_KEPT}")


if __name__ == "__main__":
    sys.exit(main())
