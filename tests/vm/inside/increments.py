"""Checkpoints write what has changed: a large job that changes little is saved, moved, compared."""

import hashlib
import json
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from tests.vm.inside.report import Report
from tests.vm.inside.site import DATA, NODES, Site, docker, run, stopwatch

_PYTHON = "stopgap/python:1"
_IMAGE = Path("/root/images/python.tar")
_NAME = "large"
_MIB = int(os.environ.get("STOPGAP_VM_LARGE_MIB", "256"))
_PAGE = 4096
_PAGES = _MIB * 2**20 // _PAGE
#: One page of a hundred is changed each time.
_STRIDE = 100
_CHECKPOINTS = Path("/srv/checkpoints")

#: Fills its memory, changes some of it whenever it is told to, and ends with the digest of all.
_PROGRAM = r"""
import hashlib, os, sys, time
pages, stride = int(sys.argv[1]), int(sys.argv[2])
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
        for page in range(turn, pages, stride):
            put(page, turn)
        say("changed %d" % turn)
    time.sleep(0.2)
say(hashlib.sha256(memory).hexdigest())
"""


def chain(report: Report) -> None:
    """Save a job after each change, evict it after the last, and see it go on from what is left."""
    site = Site(report)
    said = json.loads(site.cli("node", "probe", "--json", "n1"))[0]["fingerprint"]
    report.check("the probe says that the kernel can", said["incremental"] == "yes", said=said)
    for node in NODES:
        docker(node, "load", "--quiet", "--input", str(_IMAGE))
    site.api.drain("n2")
    job = _submit(site)
    site.wait(partial(_has_said, "filled"), "the job to fill its memory")
    first = _await_checkpoint(site, job, after=0)
    for turn in (1, 2):
        _change(site, turn)
        # One that was under way knew half of it.
        under_way = _await_checkpoint(site, job, after=_newest(site, job)["generation"])
        _await_checkpoint(site, job, after=under_way["generation"])
    kept = [c for c in _checkpoints(site, job) if c["generation"] > first["generation"]]
    report.check(
        "a checkpoint writes less than a tenth of a job that changed a hundredth",
        all(c["written_bytes"] < c["bytes"] / 10 for c in kept) and len(kept) >= 2,
        memory_mib=_MIB,
        full=_figures(first),
        later=[_figures(c) for c in kept],
    )
    _change(site, 3)
    evicted = _evict(site, job)
    report.check(
        "an eviction after it, too",
        evicted["kind"] == "evict" and evicted["written_bytes"] < evicted["bytes"] / 10,
        **_figures(evicted),
    )
    _go_on(site, job, evicted["generation"])
    report.check("no job lived twice", not site.doubles, looks=site.looks, doubles=site.doubles)
    site.api.undrain("n1")


def _submit(site: Site) -> int:
    folder = DATA / _NAME
    folder.mkdir()
    uid = int(run("id", "-u", "alice"))
    os.chown(folder, uid, uid)
    words = ("--json", "--image", _PYTHON, "--mem", f"{_MIB + 256}M", "--mount", f"{folder}:/data",
             "--checkpoint-every", "20")  # fmt: skip
    program = ("python3", "-c", _PROGRAM, str(_PAGES), str(_STRIDE))
    job = int(json.loads(site.cli("submit", *words, "--", *program, user="alice"))["id"])
    site.wait_on(job, "n1")
    return job


def _said() -> list[str]:
    path = DATA / _NAME / "said"
    return path.read_text().splitlines() if path.exists() else []


def _has_said(words: str) -> bool:
    return words in _said()


def _change(site: Site, turn: int) -> None:
    (DATA / _NAME / "wanted").write_text(str(turn))
    site.wait(partial(_has_said, f"changed {turn}"), f"change {turn}")


def _checkpoints(site: Site, job: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = site.job(job).get("checkpoints", [])
    return found


def _newest(site: Site, job: int) -> dict[str, Any]:
    return _checkpoints(site, job)[-1]


def _await_checkpoint(site: Site, job: int, *, after: int) -> dict[str, Any]:
    """Wait for a later checkpoint with all of the memory, and return the first one."""

    def there() -> dict[str, Any] | None:
        found = _checkpoints(site, job)
        whole = [c for c in found if c["bytes"] > _PAGES * _PAGE and c["generation"] > after]
        return whole[0] if whole else None

    found = site.wait(there, f"a checkpoint after generation {after}")
    assert found is not None
    return found


def _figures(checkpoint: dict[str, Any]) -> dict[str, Any]:
    names = ("generation", "bytes", "written_bytes", "seconds")
    return {name: checkpoint[name] for name in names}


def _evict(site: Site, job: int) -> dict[str, Any]:
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
        "it stands on others, and holds them itself",
        body["depth"] >= 2 and body["parent"] is not None and on_disk * 1024 > _PAGES * _PAGE,
        depth=body["depth"],
        deleted=len(older),
        kib_on_disk=on_disk,
        seconds=took(),
    )
    return evicted


def _go_on(site: Site, job: int, generation: int) -> None:
    """Resume the job on the other engine, and compare its memory with what it should be."""
    took = stopwatch()
    site.api.undrain("n2")
    site.wait_on(job, "n2")
    seconds = took()
    (DATA / _NAME / "end").touch()
    found = site.wait_state(job, "completed")
    expected = _expected()
    site.report.check(
        "it goes on elsewhere with every page as it was",
        _said()[-1] == expected and found["segments"][-1]["resumed_from"] == generation,
        sha256=_said()[-1],
        expected=expected,
        resume_seconds=seconds,
    )


def _expected() -> str:
    """Return the digest of the memory as the program left it, made page by page."""
    digest, rest = hashlib.sha256(), bytes(_PAGE - 16)
    for page in range(_PAGES):
        # The last turn that reached this page; each one begins a page later.
        turn = page % _STRIDE if page % _STRIDE in {1, 2, 3} else 0
        digest.update(b"%08d%08d" % (page, turn) + rest)
    return digest.hexdigest()
