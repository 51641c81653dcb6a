"""Prints on stdout and on stderr: streams.py STEPS SECONDS."""

import sys
import time


def main(steps: int, seconds: float) -> None:
    for step in range(steps):
        print(f"out {step}", flush=True)
        print(f"err {step}", file=sys.stderr, flush=True)
        time.sleep(seconds)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
