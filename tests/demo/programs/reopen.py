"""Appends a line by opening its file anew each time: reopen.py STEPS SECONDS FILE."""

import sys
import time
from pathlib import Path


def main(steps: int, seconds: float, path: Path) -> None:
    for step in range(steps):
        with path.open("a") as sink:
            sink.write(f"line {step} at byte {sink.tell()}\n")
        with path.open() as source:
            print(f"{step}: {sum(len(line) for line in source)} bytes", flush=True)
        time.sleep(seconds)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]))
