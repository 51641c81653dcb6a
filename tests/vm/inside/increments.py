"""Checkpoints write what has changed: a large job that changes little is saved, moved, compared."""

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.vm.inside.report import Report
from tests.vm.inside.site import DATA, NODES, Site, docker, run, stopwatch

_PYTHON = "stopgap/python:1"
_IMAGE = Path("/root/images/python.tar")
_CONFIG = Path("/etc/stopgap/config.toml")
_SCRATCH = Path("/var/lib/stopgap/scratch")
_MIB = 256
_PAGE = 4096
#: A hundredth is changed each time, neighbours: the kernel tracks a huge page as one.
_PART = 100
_CHECKPOINTS = Path("/srv/checkpoints")

#: Fills its memory, changes some of it whenever it is told to, and ends with the digest of all.
_PROGRAM = r"""
import hashlib, os, sys, time
pages, some = int(sys.argv[1]), int(sys.argv[2])
memory = memoryview(bytearray(pages * 4096))
said = open("/data/said", "a")
def put(page, turn):
    memory[page * 4096 : page * 4096 + 16] = b"%08d%08d" % (page, turn)
def say(words):
    print(words, file=said, flush=True)
def wanted():
    try:
        return int(open("/data/wanted").read() or 0)
    except FileNotFoundError:
        return 0
for page in range(pages):
    put(page, 0)
say("filled")
turn = 0
while not os.path.exists("/data/end"):
    if wanted() > turn:
        turn += 1
        for page in range(turn * some, turn * some + some):
            put(page, turn)
        say("changed %d" % turn)
    time.sleep(0.2)
say(hashlib.sha256(memory).hexdigest())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Large:
    """A job with much memory."""

    name: str
    mib: int
    #: What a hundredth that has changed takes is less than this part of all.
    part: int

    @property
    def pages(self) -> int:
        """How many pages it fills."""
        return self.mib * 2**20 // _PAGE

    @property
    def said(self) -> list[str]:
        """What it has told so far."""
        path = DATA / self.name / "said"
        return path.read_text().splitlines() if path.exists() else []

    def has_said(self, words: str) -> bool:
        """Tell whether it has told this."""
        return words in self.said


def chain(report: Report) -> None:
    """Save a job after each change, evict it after the last, and see it go on from what is left."""
    site = Site(report)
    said = json.loads(site.cli("node", "probe", "--json", "n1"))[0]["fingerprint"]
    report.check("the probe says that the kernel can", said["incremental"] == "yes", said=said)
    for node in NODES:
        docker(node, "load", "--quiet", "--input", str(_IMAGE))
    _course(site, Large(name="large", mib=_MIB, part=10))


def packed_chain(report: Report) -> None:
    """The same with everything compressed, as a site would turn it on."""
    site = Site(report)
    text = _CONFIG.read_text()
    _CONFIG.write_text(text.replace("[checkpoints]", '[checkpoints]\ncompress = "zstd"'))
    run("systemctl", "restart", "stopgapd")
    site.cli("node", "setup", *NODES)
    # So little is left of it that what is the same in every checkpoint counts.
    _course(site, Large(name="packed", mib=_MIB // 4, part=4))
    report.check("no scratch is left", not list(_SCRATCH.glob("*/*")))
    _CONFIG.write_text(text)
    run("systemctl", "restart", "stopgapd")
    site.cli("node", "setup", *NODES)


def _course(site: Site, large: Large) -> None:
    report = site.report
    site.api.drain("n2")
    job = _submit(site, large)
    site.wait(partial(large.has_said, "filled"), "the job to fill its memory")
    first = _await_checkpoint(site, job, large, after=0)
    for turn in (1, 2):
        _change(site, large, turn)
        # One that was under way knew a part of it, and the next one the rest.
        _await_checkpoint(site, job, large, after=_newest(site, job)["generation"])
    kept = [c for c in _checkpoints(site, job) if c["generation"] > first["generation"]]
    report.check(
        f"{large.name}: a checkpoint writes little when a hundredth has changed",
        all(c["written_bytes"] < c["bytes"] / large.part for c in kept) and len(kept) >= 2,
        memory_mib=large.mib,
        full=_figures(first),
        later=[_figures(c) for c in kept],
    )
    _change(site, large, 3)
    evicted = _evict(site, job, large)
    report.check(
        f"{large.name}: an eviction after it, too",
        evicted["kind"] == "evict" and evicted["written_bytes"] < evicted["bytes"] / large.part,
        **_figures(evicted),
    )
    _go_on(site, job, large, evicted["generation"])
    report.check("no job lived twice", not site.doubles, looks=site.looks, doubles=site.doubles)
    site.api.undrain("n1")


def _submit(site: Site, large: Large) -> int:
    folder = DATA / large.name
    folder.mkdir()
    uid = int(run("id", "-u", "alice"))
    os.chown(folder, uid, uid)
    words = ("--json", "--image", _PYTHON, "--mem", f"{large.mib + 256}M",
             "--mount", f"{folder}:/data", "--checkpoint-every", "0:20")  # fmt: skip
    program = ("python3", "-c", _PROGRAM, str(large.pages), str(large.pages // _PART))
    job = int(json.loads(site.cli("submit", *words, "--", *program, user="alice"))["id"])
    site.wait_on(job, "n1")
    return job


def _change(site: Site, large: Large, turn: int) -> None:
    (DATA / large.name / "wanted").write_text(str(turn))
    site.wait(partial(large.has_said, f"changed {turn}"), f"change {turn}")


def _checkpoints(site: Site, job: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = site.job(job).get("checkpoints", [])
    return found


def _newest(site: Site, job: int) -> dict[str, Any]:
    return _checkpoints(site, job)[-1]


def _await_checkpoint(site: Site, job: int, large: Large, *, after: int) -> dict[str, Any]:
    """Wait for a later checkpoint with all of the memory, and return the first one."""

    def there() -> dict[str, Any] | None:
        found = _checkpoints(site, job)
        whole = [
            c for c in found if c["plain_bytes"] > large.pages * _PAGE and c["generation"] > after
        ]
        return whole[0] if whole else None

    found = site.wait(there, f"a checkpoint after generation {after}")
    assert found is not None
    return found


def _figures(checkpoint: dict[str, Any]) -> dict[str, Any]:
    names = ("generation", "plain_bytes", "bytes", "written_bytes", "seconds")
    return {name: checkpoint[name] for name in names}


def _evict(site: Site, job: int, large: Large) -> dict[str, Any]:
    """Empty the job's node, delete all generations but the last, and return that."""
    took = stopwatch()
    site.api.drain("n1")
    site.wait_state(job, "parked")
    evicted = _newest(site, job)
    folder = _CHECKPOINTS / str(job)
    older = [entry for entry in folder.iterdir() if entry.name.isdigit()]
    older.remove(folder / str(evicted["generation"]))
    for entry in older:
        shutil.rmtree(entry)
    manifest = json.loads((folder / str(evicted["generation"]) / "manifest.json").read_text())
    body = json.loads(manifest["body"])
    on_disk = sum(int(line.split()[0]) for line in run("du", "-sk", str(folder)).splitlines())
    site.report.check(
        f"{large.name}: it stands on others, and holds them itself",
        body["depth"] >= 2 and body["parent"] is not None and on_disk * 1024 > evicted["bytes"] / 2,
        depth=body["depth"],
        deleted=len(older),
        kib_on_disk=on_disk,
        seconds=took(),
    )
    return evicted


def _go_on(site: Site, job: int, large: Large, generation: int) -> None:
    """Resume the job on the other engine, and compare its memory with what it should be."""
    took = stopwatch()
    site.api.undrain("n2")
    site.wait_on(job, "n2")
    seconds = took()
    (DATA / large.name / "end").touch()
    found = site.wait_state(job, "completed")
    expected = _expected(large)
    site.report.check(
        f"{large.name}: it goes on elsewhere with every page as it was",
        large.said[-1] == expected and found["segments"][-1]["resumed_from"] == generation,
        sha256=large.said[-1],
        expected=expected,
        resume_seconds=seconds,
    )


def _expected(large: Large) -> str:
    """Return the digest of the memory as the program left it, made page by page."""
    digest, rest, some = hashlib.sha256(), bytes(_PAGE - 16), large.pages // _PART
    for page in range(large.pages):
        # The turn that has changed it; the first part was left as it was.
        turn = page // some if page // some in {1, 2, 3} else 0
        digest.update(b"%08d%08d" % (page, turn) + rest)
    return digest.hexdigest()
