"""``stopgap simulate``: what a site would win, from its own records.  Needs no daemon."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from daemon.cli import output
from daemon.cli.options import Json

commands = typer.Typer()

# daemon.sim has the same words; loading it would cost every command 0.1 s.


class Policy(StrEnum):
    """What is done with idle nodes."""

    STOPGAP = "stopgap"
    NONE = "none"
    REQUEUE = "requeue"
    PILOTS = "pilots"
    PAPER = "paper"
    ALL = "all"


class Form(StrEnum):
    """What a trace is written in."""

    SWF = "swf"
    SACCT = "sacct"
    PBS = "pbs"
    IDLE_SAMPLES = "idle-samples"


class Scheduler(StrEnum):
    """Who may overtake whom."""

    FCFS = "fcfs"
    EASY = "easy"
    CONSERVATIVE = "conservative"


class Passes(StrEnum):
    """How often the scheduler looks at its queue."""

    EVENT = "event"
    BATCH = "batch"


@commands.command()
def simulate(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="Records of a site.")],
    *,
    form: Annotated[Form | None, typer.Option("--format", help="Else it is guessed.")] = None,
    policy: Annotated[
        list[Policy] | None,
        typer.Option(help="May be given several times.  [default: stopgap]"),
    ] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Else they are guessed.")] = None,
    cores_per_node: Annotated[
        int | None, typer.Option(min=1, help="Processors of a node; else they are guessed.")
    ] = None,
    scheduler: Annotated[
        Scheduler, typer.Option(help="How priority jobs are served.")
    ] = Scheduler.EASY,
    passes: Annotated[
        Passes, typer.Option(help="It runs after each event, or each batch of them.")
    ] = Passes.EVENT,
    jobs: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="CSV of low-priority jobs; else a mix without end."),
    ] = None,
    job_memory: Annotated[
        str, typer.Option(metavar="MIB,...", help="Their sizes in the mix, equally frequent.")
    ] = "64,128,256,512,1024,2048",
    job_cores: Annotated[int, typer.Option(min=0, help="Of each; 0 is a whole node.")] = 0,
    job_hours: Annotated[float, typer.Option(min=0.01, help="Length of each.")] = 24.0,
    costs: Annotated[
        str, typer.Option(metavar="FILE", help="JSON of costs, as measured; or zero.")
    ] = "",
    poll: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 15.0,
    idle_looks: Annotated[int, typer.Option(min=1, help="Looks that must find a node idle.")] = 1,
    pilot_minutes: Annotated[float, typer.Option(min=0.1, help="Length of pilots.")] = 30.0,
    node_memory: Annotated[int, typer.Option(min=1, metavar="MIB", help="Of a node.")] = 65536,
    seed: Annotated[int, typer.Option(help="Draws the sizes of jobs.")] = 1,
    starts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="CSV of all starts of priority jobs.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep results there, and use those there.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Replay a site's own records, with stopgap on the nodes that they leave idle."""
    from daemon.sim import report, request  # noqa: PLC0415  other commands need no simulator
    from daemon.sim.costs import CostsError  # noqa: PLC0415
    from daemon.sim.workload import TraceError  # noqa: PLC0415

    asked = request.Request(
        form=form.value if form else "",
        policies=tuple(each.value for each in policy or [Policy.STOPGAP]),
        nodes=nodes,
        cores_per_node=cores_per_node,
        scheduler=scheduler.value,
        passes=passes.value,
        jobs=jobs,
        job_memory_mib=_sizes(job_memory),
        job_cores=job_cores,
        job_hours=job_hours,
        costs=costs,
        poll_seconds=poll,
        idle_looks=idle_looks,
        pilot_seconds=pilot_minutes * 60,
        node_memory_mib=node_memory,
        seed=seed,
    )
    try:
        with _bar() as watch:
            found = request.run(trace, asked, starts=starts, out=out, watch=watch)
    except (TraceError, CostsError) as exc:
        output.complain(str(exc))
        raise typer.Exit(1) from exc
    except OSError as exc:
        output.complain(f"{exc.filename or 'the result'} cannot be written: {exc.strerror}")
        raise typer.Exit(1) from exc
    if as_json:
        output.emit(found[0] if len(found) == 1 else {"trace": trace.name, "results": found})
        return
    for guess in found[0]["guesses"]:
        output.say(f"guessed: {guess}")
    output.table(
        ("", *(each["policy"].upper() for each in found)),
        report.rows({each["policy"]: each for each in found}),
    )


def _sizes(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    if not words or not all(word.isdigit() and int(word) for word in words):
        raise typer.BadParameter(f"{text!r} are no sizes in MiB; write for example 64,512,2048")
    return tuple(dict.fromkeys(int(word) for word in words))


@contextmanager
def _bar() -> Iterator[Callable[[str, float], None] | None]:
    """Draw how far it is where somebody watches."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415  not loaded where nobody watches
    from rich.progress import Progress, TaskID  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as drawn:
        tasks: dict[str, TaskID] = {}

        def watch(policy: str, done: float) -> None:
            if policy not in tasks:
                tasks[policy] = drawn.add_task(policy, total=1.0)
            drawn.update(tasks[policy], completed=done)

        yield watch
