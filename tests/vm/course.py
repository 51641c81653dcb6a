"""The course of the test: the parts in the machine, the cut of its power, and the sum of all."""

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from tests.vm.machine import Machine

#: For one part; on an idle machine none takes a third of it.
_PART_SECONDS = 3600

#: The part that is not in the machine: its power is cut.
_POWER = "power"
_PARTS = ("service", "increments", "move", "restart", "before", _POWER, "after")

Found = list[dict[str, Any]]


def run(machine: Machine, booted_seconds: float, parts: Sequence[str] = ()) -> dict[str, Any]:
    """Run every part, or those named, until one cannot be finished, and return what was found."""
    began = time.monotonic()
    found: Found = [{"name": "boots", "ok": True, "seconds": round(booted_seconds, 1)}]
    for part in _PARTS:
        if parts and part not in parts:
            continue
        checks = _reset(machine) if part == _POWER else _part(machine, part)
        found += checks
        if any("error" in check for check in checks):
            break
    failed = [check["name"] for check in found if not check["ok"]]
    seconds = round(booted_seconds + time.monotonic() - began, 1)
    return {"ok": not failed, "failed": failed, "seconds": seconds, "checks": found}


def _part(machine: Machine, verb: str) -> Found:
    print(f"-- {verb}", file=sys.stderr, flush=True)
    status, said = machine.inside(verb, seconds=_PART_SECONDS)
    last = said.strip().rpartition("\n")[2]
    try:
        checks: Found = json.loads(last)["checks"]
    except (ValueError, KeyError):
        why = f"exit status {status}, no answer; the console ends with {machine.console[-1000:]}"
        return [{"name": verb, "ok": False, "error": why}]
    return checks


def _reset(machine: Machine) -> Found:
    print("-- the power is cut", file=sys.stderr, flush=True)
    began = time.monotonic()
    machine.reset()
    return [{"name": "boots again", "ok": True, "seconds": round(time.monotonic() - began, 1)}]
