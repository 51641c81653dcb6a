"""The demo's result: one JSON object, and what has to hold of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from daemon.api.client import Document
from tests.demo.picture import JobLook
from tests.demo.priority import PriorityJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that was measured and found."""

    jobs: tuple[JobLook, ...]
    priority: tuple[PriorityJob, ...]
    #: The daemon's own figures.
    status: Document
    real: dict[str, str]
    #: By program: what differs from the undisturbed run.
    differences: dict[str, list[str]]
    containers_left: int
    seconds: float
    #: Everything else that does not hold.
    faults: list[str] = field(default_factory=list)

    @property
    def failed(self) -> list[str]:
        """Return what does not hold, one line each."""
        return [
            *(f"{name}: {line}" for name, lines in self.differences.items() for line in lines),
            *self.faults,
        ]

    def document(self) -> dict[str, Any]:
        """Return the last line of the demo."""
        evictions = self.status["evictions"] or {}
        waits = [job.began - job.sent for job in self.priority if job.began is not None]
        return {
            "jobs": len(self.jobs),
            "completed": sum(job.state == "completed" for job in self.jobs),
            "identical": sum(not lines for lines in self.differences.values()),
            "evictions": sum(job.evictions for job in self.jobs),
            "migrations": sum(job.migrations for job in self.jobs),
            "fewest_migrations": min(job.migrations for job in self.jobs),
            "lost_work_seconds": sum(job.lost_seconds for job in self.jobs),
            "containers_left": self.containers_left,
            "vacate_seconds": evictions.get("vacate_seconds"),
            "freeze_seconds": evictions.get("freeze_seconds"),
            "priority_jobs": len(self.priority),
            "priority_completed": sum(job.ended is not None for job in self.priority),
            "priority_met_processes": sum(job.found or 0 for job in self.priority),
            "priority_wait_seconds": _figures(waits),
            "seconds": round(self.seconds, 1),
            "real": self.real,
            "failed": self.failed,
        }


def faults(
    jobs: Sequence[JobLook], priority: Sequence[PriorityJob], left: Sequence[str], *, moves: int
) -> list[str]:
    """Return what does not hold of jobs, priority jobs and what they have left behind."""
    found = []
    for job in jobs:
        if job.state != "completed":
            found.append(f"{job.name} is {job.state}: {job.reason}")
        if job.migrations < moves:
            found.append(f"{job.name} was moved {job.migrations} times, not {moves}")
        if job.lost_seconds:
            found.append(f"{job.name} lost {job.lost_seconds} s of work")
    for one in priority:
        name = f"priority job {one.number} on {one.node}"
        if one.ended is None:
            found.append(f"{name} has not run to its end")
        if one.found:
            found.append(f"{name} met {one.found} processes of jobs")
    return [*found, *(f"left behind: {line}" for line in left)]


def _figures(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {"p50": round(median(values), 3), "max": round(max(values), 3)}
