"""Ends with success on SIGTERM, with half of its work: trap.py STEPS SECONDS.

A batch system's usual way to take a node away would end it so.
"""

import signal
import sys
import time
from types import FrameType


def leave(_number: int, _frame: FrameType | None) -> None:
    print("told to stop", flush=True)
    sys.exit(0)


def main(steps: int, seconds: float) -> None:
    signal.signal(signal.SIGTERM, leave)
    for step in range(steps):
        print(f"step {step}", flush=True)
        time.sleep(seconds)
    print("all done", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
