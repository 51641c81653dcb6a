"""Jobs of two ordinary users are moved between the engines, also after one was restarted."""

from typing import Any

from tests.vm.inside import kernel
from tests.vm.inside.report import Report
from tests.vm.inside.site import (
    Site,
    counted,
    docker,
    gapless,
    recall,
    remember,
    run,
    stopwatch,
)

#: A job's name and its user.
JOBS = {"first": "alice", "second": "bob"}


def back_and_forth(report: Report) -> None:
    """Move both jobs from the first engine to the second and back."""
    site = Site(report)
    site.api.drain("n2")
    took = stopwatch()
    jobs = {name: site.submit(user, name) for name, user in JOBS.items()}
    remember(jobs=jobs)
    began = {name: site.wait_on(job, "n1") for name, job in jobs.items()}
    report.say(f"both run after {took()} s")
    hardened(report, began)
    before = {name: (segment.rights, segment.limits) for name, segment in began.items()}
    for there, here in (("n2", "n1"), ("n1", "n2")):
        move(site, jobs, before, here=here, there=there)
    report.check("no job lived twice", not site.doubles, looks=site.looks, doubles=site.doubles)


def hardened(report: Report, segments: dict[str, kernel.Segment]) -> None:
    """Show that jobs may as little as promised, each with its submitter's numbers."""
    for name, segment in segments.items():
        rights = segment.rights
        said = dict(entry.partition(" ")[::2] for entry in min(rights))
        uid = int(run("id", "-u", JOBS[name]))
        report.check(
            f"{name}: hardened",
            len(rights) == 1
            and said["Uid"] == f"{uid} {uid} {uid} {uid}"
            and {said["CapPrm"], said["CapEff"], said["CapBnd"]} == {"0" * 16}
            and (said["NoNewPrivs"], said["Seccomp"]) == ("1", "2")
            and segment.limits["memory.max"] == str(128 * 2**20)
            and segment.limits["memory.swap.max"] == "0"
            and segment.limits["pids.max"] not in {"", "max"},
            rights=said,
            limits=segment.limits,
        )


def move(
    site: Site, jobs: dict[str, int], before: dict[str, tuple[Any, Any]], *, here: str, there: str
) -> None:
    """Have one node emptied, and look at what goes on on the other."""
    for name in jobs:
        site.wait_progress(name)
    site.api.undrain(there)
    took = stopwatch()
    site.api.drain(here)
    for name, job in jobs.items():
        segment = site.wait_on(job, there)
        site.wait_progress(name)
        arrived(site, name, segment, before[name], seconds=took())
    gone(site, here)


def arrived(
    site: Site, name: str, segment: kernel.Segment, before: tuple[Any, Any], *, seconds: float
) -> None:
    """Compare a resumed segment with what it was, and its cgroup with its container."""
    rights, limits = before
    running = docker(segment.node, "ps", "--no-trunc", "--quiet").split()
    state = site.job(segment.job)
    site.report.check(
        f"{name}: moved to {segment.node}",
        rights == segment.rights
        and limits == segment.limits
        and segment.container in running
        and {segment.place} == segment.where
        and segment.own_cgroup_space
        and state["lost_seconds"] == 0,
        same_rights=rights == segment.rights,
        same_limits=limits == segment.limits,
        of_the_new_container=segment.container in running and {segment.place} == segment.where,
        own_cgroup_space=segment.own_cgroup_space,
        place=segment.place,
        epoch=segment.epoch,
        evictions=state["evictions"],
        checkpoint_seconds=[round(c["seconds"], 1) for c in state["checkpoints"] if c["seconds"]],
        seconds=seconds,
    )
    lines = counted(name)
    printed = site.log(segment.job)
    site.report.check(
        f"{name}: no number lost or repeated",
        gapless(lines) and gapless(printed),
        counted=len(lines),
        printed=len(printed),
    )


def gone(site: Site, node: str) -> None:
    """Show that nothing of ours runs on a node any more, and nothing is left of it."""
    running = docker(node, "ps", "--no-trunc", "--quiet").split()
    left = [segment for segment in kernel.segments() if segment.node == node]
    site.wait(lambda: not kernel.remains(node), f"the cgroups of {node} to be removed", seconds=120)
    site.report.check(
        f"{node} is empty, and its cgroups are gone",
        not left and not running and not kernel.strays(),
        left=left,
        running=running,
    )


def after_restart(report: Report) -> None:
    """Restart the engine below both jobs, with live-restore, and move them away."""
    site = Site(report)
    jobs = recall()["jobs"]
    before = {segment.job: segment for segment in kernel.segments()}
    took = stopwatch()
    run("systemctl", "restart", "engine@n1")
    docker("n1", "version")
    after = {segment.job: segment for segment in kernel.segments()}
    report.check(
        "dockerd restarted, jobs go on",
        all(set(before[job].pids) & set(after[job].pids) for job in jobs.values()),
        seconds=took(),
    )
    rights = {name: (before[job].rights, before[job].limits) for name, job in jobs.items()}
    move(site, jobs, rights, here="n1", there="n2")
    report.check("no job lived twice", not site.doubles, looks=site.looks, doubles=site.doubles)
