"""The model in a file, so that one program sees what another one did."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from adapters.mock_pbs.model import Model
from adapters.mock_pbs.nouns import Chunk, Cluster, Job, Reservation, Vnode
from adapters.standins import Folder
from daemon.clock import SystemClock

PROGRAMS = ("pbsnodes", "qstat", "qsub", "qdel", "qsig", "qhold", "qrls", "pbs_rstat", "qmgr")


class Standins(Folder):
    """A folder with PBS's programs, and the cluster that they speak of."""

    def install(self, cluster: Cluster) -> None:
        """Place the programs and the cluster, which is as it is given."""
        self._place("adapters.mock_pbs.programs", PROGRAMS, asdict(cluster))

    @contextmanager
    def model(self) -> Iterator[Model]:
        """Open the cluster at this moment; what was changed in it is kept when the block ends."""
        with self._opened() as document:
            cluster = _cluster(document)
            now = SystemClock().now().timestamp() if cluster.now is None else cluster.now
            model = Model(cluster, float(int(now)))
            model.cycle()
            yield model
            self._write(asdict(cluster))


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
