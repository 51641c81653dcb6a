"""The model in a file, so that one program sees what another one did; and the programs."""

import fcntl
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from adapters.mock_pbs.model import Model
from adapters.mock_pbs.nouns import Chunk, Cluster, Job, Reservation, Vnode
from daemon.clock import Clock, SystemClock

PROGRAMS = ("pbsnodes", "qstat", "qsub", "qdel", "qsig", "qhold", "qrls", "pbs_rstat", "qmgr")
_ROOT = Path(__file__).parents[2]


class Standins:
    """A folder with PBS's programs, and the cluster that they speak of."""

    def __init__(self, folder: Path, clock: Clock | None = None) -> None:
        self.bin_dir = folder / "bin"
        self._state = folder / "cluster.json"
        self._lock = folder / "lock"
        self._clock = clock or SystemClock()

    def install(self, cluster: Cluster) -> None:
        """Place the programs and the cluster, which is as it is given."""
        self.bin_dir.mkdir(parents=True, exist_ok=True)
        self._lock.touch()
        self._write(cluster)
        for name in PROGRAMS:
            path = self.bin_dir / name
            path.write_text(
                f"#!{sys.executable}\n"
                "import sys\n"
                f"sys.path.insert(0, {str(_ROOT)!r})\n"
                "from adapters.mock_pbs.programs import main\n"
                f"main({name!r}, {str(self._state.parent)!r})\n"
            )
            path.chmod(0o755)

    @contextmanager
    def model(self) -> Iterator[Model]:
        """Open the cluster at this moment; what was changed in it is kept when the block ends."""
        with self._lock.open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            cluster = _cluster(json.loads(self._state.read_text()))
            now = self._clock.now().timestamp() if cluster.now is None else cluster.now
            model = Model(cluster, float(int(now)))
            model.cycle()
            yield model
            self._write(cluster)

    def _write(self, cluster: Cluster) -> None:
        # Appears whole: whoever waits for the lock was killed, or reads it next.
        new = self._state.with_suffix(".new")
        new.write_text(json.dumps(asdict(cluster)))
        new.replace(self._state)


def _cluster(document: dict[str, Any]) -> Cluster:
    vnodes = [Vnode(**each) for each in document.pop("vnodes")]
    jobs = [_job(each) for each in document.pop("jobs")]
    reservations = [
        Reservation(**each | {"has": _chunks(each["has"])}) for each in document.pop("reservations")
    ]
    return Cluster(vnodes=vnodes, jobs=jobs, reservations=reservations, **document)


def _job(document: dict[str, Any]) -> Job:
    lists = {key: _chunks(document[key]) for key in ("asked", "has", "planned")}
    return Job(**document | lists)


def _chunks(documents: list[dict[str, Any]]) -> list[Chunk]:
    return [Chunk(**each) for each in documents]
