"""The power is cut under a parked job and running ones."""

from functools import partial

from tests.vm.inside import kernel
from tests.vm.inside.report import Report
from tests.vm.inside.site import (
    NODES,
    Site,
    counted,
    gapless,
    properties,
    recall,
    remember,
    run,
    stopwatch,
)

_THIRD = "third"


def before(report: Report) -> None:
    """Have two jobs run on the second engine, full with them, and a third parked."""
    site = Site(report)
    jobs = recall()["jobs"]
    site.api.undrain("n1")
    jobs[_THIRD] = site.submit("alice", _THIRD)
    site.wait_on(jobs[_THIRD], "n1")
    site.wait_progress(_THIRD)
    site.api.drain("n1")
    site.wait_state(jobs[_THIRD], "parked")
    for name in ("first", "second"):
        site.wait_progress(name)
    at = {name: len(counted(name)) for name in jobs}
    epochs = {name: site.job(job)["segments"][-1]["epoch"] for name, job in jobs.items()}
    remember(jobs=jobs, at=at, epochs=epochs)
    report.check("one job parked, two running", True, counted=at, epochs=epochs)
    # The count of the parked job is on the disk by its checkpoint; the rest may be lost.


def after(report: Report) -> None:
    """Find all three running again, each once, where it was or from its last generation."""
    site = Site(report)
    known, took = recall(), stopwatch()
    site.wait(_is_ready, "stopgapd to be ready")
    report.say(f"stopgapd is ready after {took()} s")
    for node in NODES:
        site.api.undrain(node)
    for name, job in known["jobs"].items():
        site.wait(partial(_lives, job), f"{name} to run")
        site.wait_progress(name)
        _judge(site, name, job, known, took())
    report.check("no job lived twice", not site.doubles, looks=site.looks, doubles=site.doubles)
    _end(site, known["jobs"])


def _is_ready() -> bool:
    return properties("stopgapd", "ActiveState")["ActiveState"] == "active"


def _lives(job: int) -> bool:
    return any(segment.job == job for segment in kernel.segments())


def _judge(
    site: Site, name: str, job: int, known: dict[str, dict[str, int]], seconds: float
) -> None:
    found, lines = site.job(job), counted(name)
    last = found["segments"][-1]
    resumed = last["resumed_from"] is not None
    parked = name == _THIRD
    site.report.check(
        f"{name}: goes on after the power was cut",
        gapless(lines)
        and last["epoch"] > known["epochs"][name]
        and (resumed or not parked)
        and (not parked or found["lost_seconds"] == 0),
        was="parked" if parked else "running",
        resumed_from=last["resumed_from"],
        lost_seconds=found["lost_seconds"],
        counted_before=known["at"][name],
        counted=len(lines),
        seconds=seconds,
    )


def _end(site: Site, jobs: dict[str, int]) -> None:
    for name in jobs:
        run("touch", f"/srv/data/{name}/stop")
    for name, job in jobs.items():
        site.wait_state(job, "completed")
        printed = site.log(job)
        site.report.check(
            f"{name}: ends by itself, with one log",
            printed[-1:] == ["end"] and gapless(printed[:-1]) and printed[:-1] == counted(name),
            printed=len(printed),
        )
    site.wait(_is_empty, "the nodes to be empty")


def _is_empty() -> bool:
    return not kernel.segments() and not kernel.strays()
