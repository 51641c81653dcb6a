"""PBS's commands over the model: what they take, print and exit with."""

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from adapters.mock_pbs import attributes, text
from adapters.mock_pbs.model import Model, RefusedError
from adapters.mock_pbs.nouns import Job
from adapters.mock_pbs.store import Standins
from adapters.standins import Said

_REFUSED = 15010


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise RefusedError(f"usage: {self.prog}: {message}")


def main(name: str, folder: str) -> NoReturn:
    """Be one of the programs, with the arguments of this process."""
    with Standins(Path(folder)).model() as model:
        said = run(model, name, sys.argv[1:])
    said.leave()


def run(model: Model, name: str, argv: Sequence[str]) -> Said:
    """Do what a command does, and return what it says."""
    if list(argv) == ["--version"]:
        return Said(f"pbs_version = {attributes.VERSION}\n")
    if model.cluster.dead:
        return _dead(model, name)
    return _COMMANDS[name](model, argv)


def _dead(model: Model, name: str) -> Said:
    """Say what the captured commands said without a server."""
    server = model.cluster.server
    told = {
        "pbsnodes": (f"pbsnodes: cannot connect to server {server}, error={_REFUSED}", 1),
        "qmgr": ("qmgr: cannot connect to server ", 3),
    }
    other = f"{name}: cannot connect to server {server} (errno={_REFUSED})", 255
    line, code = told.get(name, other)
    return Said("", f"Connection refused\n{line}\n", code)


def _pbsnodes(model: Model, argv: Sequence[str]) -> Said:
    parser = _Parser("pbsnodes", add_help=False)
    parser.add_argument("-a", action="store_true")
    parser.add_argument("-v", action="store_true")
    parser.add_argument("-F", default="")
    parser.add_argument("-o", action="store_true")
    parser.add_argument("-r", action="store_true")
    parser.add_argument("hosts", nargs="*")
    asked = parser.parse_args(argv)
    if asked.o or asked.r:
        for host in asked.hosts:
            try:
                model.mark(host, offline=bool(asked.o))
            except RefusedError as exc:
                return Said("", f"Error marking node {host} - {exc} \n", 1)
        return Said()
    known = [(v.name, attributes.of_node(model, v)) for v in model.cluster.vnodes]
    if asked.hosts:
        missing = [host for host in asked.hosts if host not in dict(known)]
        known = [each for each in known if each[0] in asked.hosts]
        errors = "".join(f"Node: {host},  Error: Unknown node \n" for host in missing)
        return Said(text.nodes(known), errors, 1 if missing else 0)
    return Said(text.nodes_dsv(known) if asked.F == "dsv" else text.nodes(known))


def _qstat(model: Model, argv: Sequence[str]) -> Said:
    parser = _Parser("qstat", add_help=False)
    for flag in "ftBx":
        parser.add_argument(f"-{flag}", action="store_true")
    parser.add_argument("-F", default="")
    parser.add_argument("jobs", nargs="*")
    asked = parser.parse_args(argv)
    if asked.B:
        hides = ("query_other_jobs", str(model.cluster.query_other_jobs))
        server = [("server_state", "Active"), hides, ("pbs_version", attributes.VERSION)]
        return Said(text.jobs_dsv([(model.cluster.server, [*server])], "Server"))
    visible = model.cluster.query_other_jobs or os.geteuid() == 0
    listed = [(_id(model, job), job) for job in model.cluster.jobs if visible]
    errors = ""
    if asked.jobs:
        known = {name.split(".", 1)[0]: (name, job) for name, job in listed}
        missing = [name for name in asked.jobs if name.split(".", 1)[0] not in known]
        errors = "".join(f"qstat: Unknown Job Id {_full(model, name)}\n" for name in missing)
        wanted = dict.fromkeys(name.split(".", 1)[0] for name in asked.jobs)
        listed = [known[name] for name in wanted if name in known]
    if asked.f:
        full = [(name, attributes.of_job(model, job)) for name, job in listed]
        printed = text.jobs_dsv(full) if asked.F == "dsv" else text.jobs(full)
    else:
        printed = text.table(listed)
    return Said(printed, errors, 153 if errors else 0)


def _qsub(model: Model, argv: Sequence[str]) -> Said:
    parser = _Parser("qsub", add_help=False)
    parser.add_argument("-N", default="STDIN")
    parser.add_argument("-q", default="workq")
    parser.add_argument("-l", action="append", default=[])
    parser.add_argument("-h", action="store_true")
    parser.add_argument("-r", default="y")
    for ignored in "ojeW":
        parser.add_argument(f"-{ignored}", default="")
    parser.add_argument("script", nargs="*")
    asked = parser.parse_args(argv)
    wanted = dict(word.split("=", 1) for word in asked.l)
    try:
        job = model.submit(
            name=asked.N,
            owner=os.environ.get("PBS_O_LOGNAME", "alice"),
            queue=asked.q,
            select=wanted.get("select", "1:ncpus=1"),
            place=wanted.get("place", "free"),
            walltime=_seconds(wanted["walltime"]) if "walltime" in wanted else None,
            held=asked.h,
            rerunnable=asked.r == "y",
            arguments=" ".join(argv),
        )
    except RefusedError as exc:
        return Said("", f"qsub: {exc}\n", 170)
    return Said(f"{_id(model, job)}\n")


def _on_jobs(name: str, act: Callable[[Model, int, str], None]) -> Callable[..., Said]:
    """Make a command that does something to each job that it names."""

    def command(model: Model, argv: Sequence[str]) -> Said:
        parser = _Parser(name, add_help=False)
        for option in "sWh":
            parser.add_argument(f"-{option}", default="")
        parser.add_argument("jobs", nargs="+")
        asked = parser.parse_args(argv)
        errors = ""
        for job in asked.jobs:
            found = re.fullmatch(r"(\d+)(\..*)?", job)
            if found is None:
                return Said("", f"{name}: illegally formed job identifier: {job}\n", 2)
            try:
                act(model, int(found[1]), asked.s or asked.h)
            except RefusedError as exc:
                errors += f"{name}: {exc} {_full(model, job)}\n"
        return Said("", errors, 153 if errors else 0)

    return command


def _signal(model: Model, job: int, number: str) -> None:
    """Stop or continue; another signal ends the job, which is all that a model has of it."""
    if number == "suspend":
        model.suspend(job)
    elif number == "resume":
        model.resume(job)
    elif number not in {"0", "SIGCONT", "CONT"}:
        model.delete(job)


def _pbs_rstat(model: Model, argv: Sequence[str]) -> Said:
    listed = [(r.name, attributes.of_reservation(model, r)) for r in model.cluster.reservations]
    if not {"-f", "-F"} & set(argv):
        return Said("".join(f"Resv ID: {name}\n" for name, _ in listed))
    return Said(text.reservations(listed))


def _id(model: Model, job: Job) -> str:
    return _full(model, str(job.number))


def _full(model: Model, name: str) -> str:
    return name if "." in name else f"{name}.{model.cluster.server}"


def _seconds(words: str) -> int:
    total = 0
    for part in words.split(":"):
        total = total * 60 + int(part)
    return total


_COMMANDS: dict[str, Callable[[Model, Sequence[str]], Said]] = {
    "pbsnodes": _pbsnodes,
    "qstat": _qstat,
    "qsub": _qsub,
    "qdel": _on_jobs("qdel", lambda model, job, _: model.delete(job)),
    "qsig": _on_jobs("qsig", _signal),
    "qhold": _on_jobs("qhold", lambda model, job, kind: model.hold(job, kind or "u")),
    "qrls": _on_jobs("qrls", lambda model, job, _: model.release(job)),
    "pbs_rstat": _pbs_rstat,
    # There are no hooks.
    "qmgr": lambda _model, _argv: Said(),
}
