"""Priority jobs: sent by ``sbatch`` to a node of our choice, and what they report."""

import time
from dataclasses import dataclass
from pathlib import Path

from tests.testbed import Bed

_SCRIPT = Path(__file__).with_name("priority.sh")


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityJob:
    """One priority job, and what it has written down so far."""

    number: str
    node: str
    #: Seconds since 1970, as are the others.
    sent: float
    began: float | None = None
    ended: float | None = None
    #: Processes of ours that it saw on its node when it began.
    found: int | None = None


class PriorityJobs:
    """All priority jobs of a run, in the order in which they were sent."""

    def __init__(self, bed: Bed) -> None:
        self._bed = bed
        self._notes = bed.data / "priority"
        self._notes.mkdir()
        self._sent: list[PriorityJob] = []

    def send(self, node: str, *, seconds: float) -> PriorityJob:
        """
        Claim a whole node for a job that then runs for so long.

        Raises:
            BedError: Slurm refused it.
        """
        argv = ["sbatch", "--parsable", f"--nodelist={node}", "--output=/dev/null"]
        argv += ["--job-name=priority", "--no-requeue"]
        argv += [str(_SCRIPT), str(self._notes), self._bed.layout.cgroups[0], str(seconds)]
        sent = time.time()
        number = self._bed.run(argv).stdout.strip()
        job = PriorityJob(number=number, node=node, sent=sent)
        self._sent.append(job)
        return job

    def look(self) -> tuple[PriorityJob, ...]:
        """Return all of them with what each has written down."""
        return tuple(self._read(job) for job in self._sent)

    def _read(self, job: PriorityJob) -> PriorityJob:
        note = self._notes / job.number
        if not note.exists():
            return job
        lines = [line.split() for line in note.read_text().splitlines()]
        said = {words[0]: words[1] for words in lines if len(words) == 2}
        return PriorityJob(
            number=job.number,
            node=said.get("node", job.node),
            sent=job.sent,
            began=_number(said.get("began")),
            ended=_number(said.get("ended")),
            found=int(said["found"]) if "found" in said else None,
        )


def _number(text: str | None) -> float | None:
    return None if text is None else float(text)
