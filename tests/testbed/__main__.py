"""The command line of this checkout's bed: ``python -m tests.testbed up|env|down``."""

import argparse
import fcntl
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.testbed import criu, layout, stock
from tests.testbed.bed import Bed, BedError, forget, sweep
from tests.testbed.criu import CriuError
from tests.testbed.engines import EngineError
from tests.testbed.images import ImageError
from tests.testbed.layout import LayoutError
from tests.testbed.parts import PartError
from tests.testbed.paths import CURRENT, LOCK
from tests.testbed.requirements import missing
from tests.testbed.stock import StockError
from tests.testbed.teardown import LeftoversError

_ERRORS = (
    BedError,
    CriuError,
    EngineError,
    ImageError,
    LayoutError,
    LeftoversError,
    PartError,
    StockError,
)


def main() -> int:
    """Carry out one command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.testbed", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="start the bed")
    up.add_argument("--no-daemon", action="store_true", help="leave stopgap itself out")
    verbs.add_parser("prepare", help="make what the first bed would make: CRIU and images")
    verbs.add_parser("env", help="print the variables to use the bed with")
    verbs.add_parser("down", help="end the bed, and those that crashed programs left")
    asked = parser.parse_args()
    try:
        if asked.verb == "up":
            return _up(daemon=not asked.no_daemon)
        return {"prepare": _prepare, "env": _env, "down": _down}[asked.verb]()
    except _ERRORS as exc:
        return _fail(str(exc))


def _up(*, daemon: bool) -> int:
    if reasons := missing():
        return _fail("\n".join(reasons))
    with _locked():
        if bed := _current():
            if bed.whole:
                _say(f"a bed is up already at {bed.root}; 'make bed-down' ends it")
                if daemon and bed.process("stopgapd") is None:
                    bed.start_daemon()
                    _say("its daemon had ended and is started again")
                return 0
            _say(f"the bed at {bed.root} is broken; ending it first")
            _end(bed)
        bed = Bed(layout.reserve(nodes=4, note=CURRENT))
        try:
            bed.up()
            if daemon:
                bed.start_daemon()
                bed.setup_nodes()
        except BaseException:
            _end(bed)
            raise
    _say(f"the bed is up at {bed.root}")
    _say('eval "$(make -s bed-env)" lets this shell use it')
    return 0


def _prepare() -> int:
    """Without root there is nothing to prepare; that is said, and no error."""
    if reasons := missing():
        _say("\n".join(reasons))
    else:
        criu.ensure()
        stock.ensure()
    return 0


def _env() -> int:
    bed = _current()
    if bed is None:
        return _fail("no bed is up; 'make bed' starts one")
    for name, value in bed.exports.items():
        quoted = value.replace("'", "'\\''")
        print(f"export {name}='{quoted}'")
    return 0


def _down() -> int:
    with _locked():
        sweep()
        bed = _current()
        if bed is None:
            _say("no bed is up")
            return 0
        _end(bed)
    _say("the bed is down")
    return 0


def _end(bed: Bed) -> None:
    bed.down()
    forget(CURRENT)


def _current() -> Bed | None:
    with layout.notes_locked():
        layout.clear(CURRENT)
    known = layout.load(CURRENT)
    return Bed(known) if known else None


def _say(words: str) -> None:
    print(words, file=sys.stderr)


def _fail(words: str) -> int:
    _say(words)
    return 1


@contextmanager
def _locked() -> Iterator[None]:
    """Let one command at a time change which bed is the current one."""
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main())
