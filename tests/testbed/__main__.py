"""The command line of the current bed: ``python -m tests.testbed up|env|down``."""

import argparse
import fcntl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.testbed.bed import Bed, BedError, sweep
from tests.testbed.criu import CriuError
from tests.testbed.engines import EngineError
from tests.testbed.images import ImageError
from tests.testbed.paths import CURRENT, LOCK
from tests.testbed.requirements import missing
from tests.testbed.teardown import LeftoversError


def main() -> int:
    """Carry out one command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.testbed", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="start the bed")
    up.add_argument("--no-daemon", action="store_true", help="leave stopgap itself out")
    up.add_argument("--root", type=Path, help="an empty folder on a real disk")
    verbs.add_parser("env", help="print the variables to use the bed with")
    verbs.add_parser("down", help="end the bed, and those that crashed programs left")
    asked = parser.parse_args()
    verb = {
        "up": lambda: _up(daemon=not asked.no_daemon, root=asked.root),
        "env": _env,
        "down": _down,
    }[asked.verb]
    try:
        return verb()
    except (BedError, CriuError, EngineError, ImageError, LeftoversError) as exc:
        print(exc, file=sys.stderr)
        return 1


def _up(*, daemon: bool, root: Path | None) -> int:
    if reasons := missing():
        print("\n".join(reasons), file=sys.stderr)
        return 1
    with _locked():
        if bed := _current():
            print(f"a bed is up already at {bed.root}; 'make bed-down' ends it", file=sys.stderr)
            return 0
        bed = Bed.create(root=root)
        CURRENT.write_text(str(bed.root))
        try:
            bed.up()
            if daemon:
                bed.start_daemon()
                bed.setup_nodes()
        except BaseException:
            bed.down()
            CURRENT.unlink()
            raise
    print(f"the bed is up at {bed.root}", file=sys.stderr)
    print('eval "$(make -s bed-env)" lets this shell use it', file=sys.stderr)
    return 0


def _env() -> int:
    bed = _current()
    if bed is None:
        print("no bed is up; 'make bed' starts one", file=sys.stderr)
        return 1
    for name, value in bed.exports.items():
        quoted = value.replace("'", "'\\''")
        print(f"export {name}='{quoted}'")
    return 0


def _down() -> int:
    with _locked():
        sweep()
        bed = _current()
        if bed is None:
            print("no bed is up", file=sys.stderr)
            return 0
        bed.down()
        CURRENT.unlink()
    print("the bed is down", file=sys.stderr)
    return 0


def _current() -> Bed | None:
    if not CURRENT.exists():
        return None
    try:
        return Bed.attach(Path(CURRENT.read_text()))
    except FileNotFoundError:
        CURRENT.unlink()
        return None


@contextmanager
def _locked() -> Iterator[None]:
    """Let one command at a time change which bed is the current one."""
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main())
