"""``python -m tests.vm``: the test in a virtual machine, or the machine for work by hand."""

import argparse
import json
import shlex
import signal
import sys
import time
from collections.abc import Sequence

from tests.testbed.images import ImageError
from tests.vm import course, image, tools
from tests.vm.machine import Machine
from tests.vm.tools import VmError


def main() -> int:
    """Carry out one command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.vm", description=__doc__)
    verbs = parser.add_subparsers(dest="verb")
    test = verbs.add_parser("test", help="run the test; the last line on stdout is one JSON object")
    test.add_argument("parts", nargs="*", metavar="PART", help="only these, in the usual order")
    verbs.add_parser("prepare", help="make the disk that the others boot from")
    verbs.add_parser("up", help="boot the machine and print the command that logs into it")
    words = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        tools.ensure()
        made = image.ensure()
        if words.verb == "prepare":
            return 0
        return _up(made) if words.verb == "up" else _test(made, getattr(words, "parts", []))
    except (VmError, ImageError) as exc:
        print(exc, file=sys.stderr)
        return 1


def _test(made: image.Image, parts: Sequence[str]) -> int:
    began = time.monotonic()
    with Machine.running(made) as machine:
        found = course.run(machine, time.monotonic() - began, parts)
    print(json.dumps(found))
    return 0 if found["ok"] else 1


def _up(made: image.Image) -> int:
    with Machine.running(made) as machine:
        print(shlex.join(machine.ssh), flush=True)
        print("the machine is up until this program ends", file=sys.stderr)
        signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())
