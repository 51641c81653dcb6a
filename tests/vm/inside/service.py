"""First part: the real unit starts the daemon, which sets both nodes up and tries them."""

import json

from tests.vm.inside.report import Report
from tests.vm.inside.site import NODES, Site, docker, properties, run, stopwatch

_IMAGES = "/root/images"


def engines(report: Report) -> None:
    """Show the ground that all stands on: versions, cgroup v2, the drivers."""
    took = stopwatch()
    run("systemctl", "start", *(f"engine@{node}" for node in NODES))
    for node in NODES:
        docker(node, "load", "--quiet", "--input", f"{_IMAGES}/busybox.tar")
    facts = {node: json.loads(docker(node, "info", "--format", "{{json .}}")) for node in NODES}
    criu = run("criu", "--version").split()[1]
    report.check(
        "two engines on cgroup v2",
        all(said["CgroupVersion"] == "2" for said in facts.values()),
        drivers=[said["CgroupDriver"] for said in facts.values()],
        docker=facts["n1"]["ServerVersion"],
        runc=run("runc", "--version").split()[2],
        criu=criu,
        kernel=facts["n1"]["KernelVersion"],
        systemd=run("systemctl", "--version").split()[1],
        seconds=took(),
    )


def daemon(report: Report) -> None:
    """Start the service as the operations page says."""
    took = stopwatch()
    run("systemctl", "enable", "--now", "stopgapd")
    names = ("Type", "ActiveState", "NRestarts", "StatusText", "WatchdogTimestampMonotonic")
    said = properties("stopgapd", *names)
    report.check(
        "the unit reaches READY",
        said["Type"] == "notify" and said["ActiveState"] == "active",
        status=said["StatusText"],
        seconds=took(),
    )


def nodes(report: Report) -> None:
    """Set both nodes up, and see the canary come back."""
    site = Site(report)
    took = stopwatch()
    steps = json.loads(site.cli("node", "setup", "--json", *NODES))
    failed = [step for node in steps for step in node["steps"] if "failed" in step]
    report.check("node setup", not failed, failed=failed, seconds=took())
    # The daemon sends the canary by itself after a node was set up.
    took = stopwatch()

    def all_fit() -> bool:
        return all(node["fit"] for node in site.api.nodes())

    site.wait(all_fit, "the canary to come back from both")
    report.check(
        "the canary comes back from both engines",
        all_fit(),
        probed=_probed(),
        seconds=took(),
    )


def _probed() -> list[object]:
    lines = run("journalctl", "--unit=stopgapd", "--output=cat").splitlines()
    events = [json.loads(line) for line in lines if line.startswith("{")]
    return [event for event in events if event["event"] == "node.probed" and event["fit"]]


def watchdog(report: Report) -> None:
    """See the loop report to systemd again and again."""
    site = Site(report)
    names = ("WatchdogTimestampMonotonic", "NRestarts", "ActiveState", "WatchdogUSec")

    def last() -> int:
        return int(properties("stopgapd", *names)["WatchdogTimestampMonotonic"])

    first, took = last(), stopwatch()
    site.wait(lambda: last() > first, "the watchdog to be told", seconds=120)
    said = properties("stopgapd", *names)
    report.check(
        "the watchdog is told, and nothing was started again",
        said["NRestarts"] == "0" and said["ActiveState"] == "active",
        limit=said["WatchdogUSec"],
        seconds=took(),
    )
