"""What belongs to a job and is too large or too secret for the database: files, root-only.

jobs/<id>/env.json      values of the job's environment
jobs/<id>/<epoch>.log   what a segment printed; complete as soon as it is there
jobs/<id>/<epoch>.<generation>.log   the same until a checkpoint from which it went on
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from daemon.core.types import Epoch, Generation, JobId
from daemon.durable import write_whole

_CHUNK = 1 << 20


class Spool:
    """The jobs' own files."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put_env(self, job: JobId, env: Mapping[str, str]) -> None:
        """Keep the job's environment until the job has ended."""
        self._put(self._folder(job) / "env.json", [json.dumps(dict(env)).encode()])

    def env(self, job: JobId) -> dict[str, str]:
        """Return the job's environment; empty when it has none."""
        try:
            text = (self._folder(job) / "env.json").read_text()
        except FileNotFoundError:
            return {}
        return {str(name): str(value) for name, value in json.loads(text).items()}

    def drop_env(self, job: JobId) -> None:
        """Forget the job's environment; idempotent."""
        (self._folder(job) / "env.json").unlink(missing_ok=True)

    def put_log(
        self, job: JobId, epoch: Epoch, chunks: Iterable[bytes], *, until: Generation | None = None
    ) -> None:
        """Keep what a segment printed, all or ``until`` a checkpoint: whole or not at all."""
        self._put(self._log(job, epoch, until), chunks)

    def has_log(self, job: JobId, epoch: Epoch, *, until: Generation | None = None) -> bool:
        """Tell whether the segment's log has been kept."""
        return self._log(job, epoch, until).exists()

    def log(self, job: JobId, epoch: Epoch, *, until: Generation | None = None) -> Iterator[bytes]:
        """Yield what the segment printed; nothing when it was not kept."""
        try:
            file = self._log(job, epoch, until).open("rb")
        except FileNotFoundError:
            return
        with file:
            while chunk := file.read(_CHUNK):
                yield chunk

    def kept_until(self, job: JobId, epoch: Epoch) -> Generation | None:
        """Return the newest checkpoint of the segment until which its log was kept."""
        found = (int(path.name.split(".")[1]) for path in self._folder(job).glob(f"{epoch}.*.log"))
        newest = max(found, default=None)
        return None if newest is None else Generation(newest)

    def trim(self, job: JobId, epoch: Epoch, *, keep: Generation) -> None:
        """Drop what was kept until checkpoints of the segment that are older than one."""
        for path in self._folder(job).glob(f"{epoch}.*.log"):
            if int(path.name.split(".")[1]) < keep:
                path.unlink(missing_ok=True)

    def _log(self, job: JobId, epoch: Epoch, until: Generation | None) -> Path:
        name = f"{epoch}.log" if until is None else f"{epoch}.{until}.log"
        return self._folder(job) / name

    def _folder(self, job: JobId) -> Path:
        return self._root / "jobs" / str(job)

    def _put(self, path: Path, chunks: Iterable[bytes]) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, chunks)
