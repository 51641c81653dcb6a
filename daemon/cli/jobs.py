"""Commands about jobs."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from daemon.api.client import Client, ClientRefusedError, Document
from daemon.cli import output, units
from daemon.cli.options import DEFAULT_SOCKET, Jobs, Json, Socket, client
from daemon.core.types import AfterCrash, CheckpointMode

commands = typer.Typer()


def _memory(text: str) -> int:
    return _parsed(units.memory_mib, text)


def _time(text: str) -> int:
    return _parsed(units.time_seconds, text)


def _parsed(parse: Any, text: str) -> int:
    try:
        amount: int = parse(text)
    except ValueError as exc:
        raise typer.BadParameter(str(exc)) from exc
    return amount


@commands.command(context_settings={"allow_interspersed_args": False})
def submit(
    *,
    image: Annotated[str, typer.Option(help="The container image, as for docker run.")],
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND", show_default=False)
    ] = None,
    name: Annotated[str | None, typer.Option(help="Default: the program's name.")] = None,
    cpus: Annotated[int, typer.Option(min=1, help="Cores.")] = 1,
    mem: Annotated[
        int, typer.Option(parser=_memory, metavar="SIZE", help="Memory at its peak: 512M, 4G.")
    ] = "1G",  # type: ignore[assignment]  # typer parses defaults
    mount: Annotated[
        list[str] | None, typer.Option(metavar="SRC:DST[:ro]", help="Directory to bring along.")
    ] = None,
    env: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE")] = None,
    workdir: Annotated[str | None, typer.Option(metavar="PATH", help="In the container.")] = None,
    time: Annotated[
        int | None,
        typer.Option(parser=_time, metavar="TIME", help="Limit of all segments: 1-12:00:00."),
    ] = None,
    output_file: Annotated[
        str | None, typer.Option("--output", metavar="FILE", help="Also write the log there.")
    ] = None,
    checkpoint: Annotated[
        CheckpointMode, typer.Option(help="How the job is saved when its node is wanted.")
    ] = CheckpointMode.CRIU,
    checkpoint_every: Annotated[
        int | None,
        typer.Option(parser=_time, metavar="TIME", help="Save it so often. Default: by its cost."),
    ] = None,
    after_crash: Annotated[
        AfterCrash,
        typer.Option(help="What to do when its files have changed since the last checkpoint."),
    ] = AfterCrash.HOLD,
    results: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="What it writes on its mounts, as it sees it."),
    ] = None,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Enqueue a job: stopgap submit --image IMAGE [OPTIONS] -- COMMAND..."""
    if not command:
        raise typer.BadParameter("the command is missing; write it last, after --")
    job: dict[str, Any] = {
        "image": image,
        "command": command,
        "cpus": cpus,
        "mem_mib": mem,
        "mounts": [_mount(text) for text in mount or ()],
        "env": dict(_variable(text) for text in env or ()),
        "workdir": workdir,
        "time_seconds": time,
        "output": None if output_file is None else os.path.abspath(output_file),  # noqa: PTH100  normalized
        "checkpoint": checkpoint.value,
        "checkpoint_every_seconds": checkpoint_every,
        "after_crash": after_crash.value,
        "results": results or [],
    }
    if name is not None:
        job["name"] = name
    answer = client(socket).submit(job)
    if as_json:
        output.emit(answer)
    else:
        output.say(f"job {answer['id']} is {answer['state']}")


def _mount(text: str) -> dict[str, Any]:
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if not source or not target or mode not in ("", "ro", "rw"):
        raise typer.BadParameter(f"--mount {text!r} is not SOURCE:TARGET or SOURCE:TARGET:ro")
    return {"source": source, "target": target, "read_only": mode == "ro"}


def _variable(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not name:
        raise typer.BadParameter(f"--env {text!r} has no name; write NAME=VALUE")
    if not found:
        raise typer.BadParameter(f"--env {name!r} has no value; write NAME=VALUE")
    return name, value


@commands.command()
def queue(
    *,
    everybody: Annotated[bool, typer.Option("--all", "-a", help="Jobs of all users.")] = False,
    ended: Annotated[bool, typer.Option("--ended", "-e", help="Ended jobs too.")] = False,
    user: Annotated[str, typer.Option("--user", "-u", help="Jobs of this user.")] = "",
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """List your jobs."""
    found = client(socket).jobs(all_users=everybody, ended=ended, user=user)
    if as_json:
        output.emit(found)
    else:
        output.queue(found)


@commands.command()
def show(
    job: Annotated[int, typer.Argument(metavar="JOB", min=1)],
    *,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Describe a job with its segments, checkpoints and events."""
    found = client(socket).job(job)
    if as_json:
        output.emit(found)
    else:
        output.job(found)


@commands.command()
def logs(
    job: Annotated[int, typer.Argument(metavar="JOB", min=1)],
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until it ends.")] = False,
    socket: Socket = DEFAULT_SOCKET,
) -> None:
    """Print what a job printed, byte by byte, across all nodes it was on."""
    for chunk in client(socket).logs(job, follow=follow):
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()


@commands.command()
def cancel(jobs: Jobs, *, socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """End jobs and forget their checkpoints."""
    _wish(socket, "cancel", jobs, as_json=as_json)


@commands.command()
def hold(jobs: Jobs, *, socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """Keep jobs from running; one that runs goes on until it is evicted."""
    _wish(socket, "hold", jobs, as_json=as_json)


@commands.command()
def release(jobs: Jobs, *, socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """Let held jobs run again."""
    _wish(socket, "release", jobs, as_json=as_json)


def _wish(socket: Path, verb: str, jobs: list[int], *, as_json: bool) -> None:
    """Ask for each job; one that is refused does not keep the others from it."""
    ask = getattr(client(socket), verb)
    answers: list[Document] = []
    refused = False
    for job in jobs:
        try:
            answers.append(ask(job))
        except ClientRefusedError as exc:
            output.complain(f"job {job}: {exc.error}", exc.hint)
            refused = True
            continue
        if not as_json:
            answer = answers[-1]
            state = answer["state"]
            # What it waits for is all that there is to tell of it.
            why = f": {answer['reason']}" if state == "unreachable" else ""
            output.say(f"job {job} {answer['result'].replace('_', ' ')}; it is {state}{why}")
    if as_json:
        output.emit(answers)
    if refused:
        raise typer.Exit(1)


@commands.command()
def wait(
    jobs: Jobs,
    *,
    timeout: Annotated[
        int | None,
        typer.Option(parser=_time, metavar="TIME", help="Give up after this time."),
    ] = None,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Wait until jobs have ended; status 0 when all of them completed."""
    from daemon.cli.waiting import Wait  # noqa: PLC0415  knows the clock, which others do not need

    waiting = Wait(Client(socket), jobs, timeout)
    for found in waiting.ends():
        if not as_json:
            output.say(f"job {found['id']} {_end(found)}")
    if as_json:
        output.emit(list(waiting.ended.values()))
    if waiting.missing:
        pending = ", ".join(map(str, waiting.missing))
        output.complain(f"still not ended: {pending}", "wait again, or look with stopgap queue")
    if waiting.missing or any(job["state"] != "completed" for job in waiting.ended.values()):
        raise typer.Exit(1)


def _end(job: Document) -> str:
    code = job["exit_code"]
    return job["state"] if code in (None, 0) else f"{job['state']} with exit code {code}"
