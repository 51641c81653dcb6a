"""Prints for ever on one line: nonewline.py STEPS SECONDS."""

import sys
import time


def main(steps: int, seconds: float) -> None:
    for step in range(steps):
        sys.stdout.write(f"{step},")
        sys.stdout.flush()
        time.sleep(seconds)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
