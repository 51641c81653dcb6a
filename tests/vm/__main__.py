"""``python -m tests.vm``: the test in a virtual machine, or the machine for work by hand."""

import argparse
import json
import shlex
import signal
import sys
import time

from tests.testbed.images import ImageError
from tests.vm import course, image, tools
from tests.vm.machine import Machine
from tests.vm.tools import VmError


def main() -> int:
    """Carry out one command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.vm", description=__doc__)
    verbs = parser.add_subparsers(dest="verb")
    verbs.add_parser("test", help="run the test; the last line on stdout is one JSON object")
    verbs.add_parser("prepare", help="make the disk that the others boot from")
    verbs.add_parser("up", help="boot the machine and print the command that logs into it")
    verb = parser.parse_args().verb
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        tools.ensure()
        made = image.ensure()
        return {"prepare": lambda _: 0, "up": _up}.get(verb, _test)(made)
    except (VmError, ImageError) as exc:
        print(exc, file=sys.stderr)
        return 1


def _test(made: image.Image) -> int:
    began = time.monotonic()
    with Machine.running(made) as machine:
        found = course.run(machine, time.monotonic() - began)
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
