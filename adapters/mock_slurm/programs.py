"""Slurm's commands over the model: what they take, print and exit with."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from adapters.mock_slurm import text
from adapters.mock_slurm.ledger import Act, Ledger, Shims
from adapters.standins import Said

#: The only columns that are printed: those that stopgap asks for.
_FORMAT = "%A|%T|%S|%N|%Y"
_GONE = "error: Unable to contact slurm controller (connect failure)"


def main(name: str, folder: str) -> NoReturn:
    """Be one of the programs, with the arguments of this process."""
    with Shims(Path(folder)).ledger() as ledger:
        said = run(ledger, name, sys.argv[1:], dict(os.environ))
    said.leave()


def run(
    ledger: Ledger,
    name: str,
    argv: Sequence[str],
    env: dict[str, str],
    facts: text.Facts | None = None,
) -> Said:
    """Do what a command does, and return what it says."""
    if "--version" in argv:
        return Said(f"slurm-wlm {ledger.version}\n")
    known = facts or text.Facts(
        version=ledger.version,
        seconds=env.get("SLURM_TIME_FORMAT") == "%s",
        reasons=ledger.reasons(),
    )
    if ledger.dead:
        words = {"squeue": "slurm_load_jobs", "scontrol": "slurm_load_node"}
        return Said("", f"{words.get(name, name)} {_GONE}\n", 1)
    return _COMMANDS[name](ledger, argv, known)


def _scontrol(ledger: Ledger, argv: Sequence[str], facts: text.Facts) -> Said:
    words = [word for word in argv if not word.startswith("-")]
    pairs = dict(word.split("=", 1) for word in words if "=" in word)
    match words[:2]:
        case ["show", "node"]:
            return Said(text.nodes(ledger.model(), facts))
        case ["show", "reservation"]:
            return Said(text.reservations(ledger.model(), facts))
        case ["show", "config"]:
            return Said(f"SLURM_VERSION           = {ledger.version}\nSuspendTime = INFINITE\n")
        case ["suspend" | "resume", job]:
            ledger.acts.append(Act(at=ledger.now, what=words[0], job=int(job)))
        case ["create", "reservation"]:
            return _reserve(ledger, pairs)
        case ["update", _] if "nodename" in pairs:
            drains = pairs.get("state") == "drain"
            act = Act(at=ledger.now, what="drain" if drains else "undrain")
            act.nodes, act.text = pairs["nodename"].split(","), pairs.get("reason", "")
            ledger.acts.append(act)
        case _:
            return Said("", f"invalid entity: {' '.join(words)}\n", 1)
    return Said()


def _reserve(ledger: Ledger, pairs: dict[str, str]) -> Said:
    number = sum(act.what == "reserve" for act in ledger.acts) + 1
    begin = pairs.get("starttime", "now").removeprefix("now").removeprefix("+")
    act = Act(at=ledger.now, what="reserve", text=f"root_{number}")
    act.begin = ledger.now + float(begin or 0)
    act.nodes = pairs["nodes"].split(",")
    act.seconds = 60.0 * float(pairs.get("duration", "60"))
    act.maintenance = "maint" in pairs.get("flags", "")
    ledger.acts.append(act)
    return Said(f"Reservation created: {act.text}\n")


def _squeue(ledger: Ledger, argv: Sequence[str], facts: text.Facts) -> Said:
    asked = _options(argv)
    if asked.get("format") != _FORMAT:
        return Said("", "squeue: error: these columns are not modelled\n", 1)
    return Said(text.jobs(ledger.model(), facts))


def _sbatch(ledger: Ledger, argv: Sequence[str], _: text.Facts) -> Said:
    asked = _options(argv)
    act = Act(at=ledger.now, what="submit", job=ledger.next_job)
    act.nodes = sorted(filter(None, asked.get("nodelist", "").split(",")))
    act.seconds = 60.0 * float(asked.get("time", "60"))
    ledger.next_job += 1
    ledger.acts.append(act)
    return Said(f"{act.job}\n" if "parsable" in asked else f"Submitted batch job {act.job}\n")


def _options(argv: Sequence[str]) -> dict[str, str]:
    return dict(word.removeprefix("--").partition("=")[::2] for word in argv)


def _scancel(ledger: Ledger, argv: Sequence[str], _: text.Facts) -> Said:
    ledger.acts += [Act(at=ledger.now, what="cancel", job=int(job)) for job in argv]
    return Said()


_COMMANDS: dict[str, Callable[[Ledger, Sequence[str], text.Facts], Said]] = {
    "scontrol": _scontrol,
    "squeue": _squeue,
    "sbatch": _sbatch,
    "scancel": _scancel,
}
