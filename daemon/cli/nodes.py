"""Commands about nodes and the daemon's state."""

from collections.abc import Callable
from typing import Annotated

import typer

from daemon.api.client import ClientRefusedError, Document
from daemon.cli import output
from daemon.cli.options import DEFAULT_SOCKET, Json, Nodes, Socket, client, expand

commands = typer.Typer()
node_commands = typer.Typer(no_args_is_help=True)


@commands.command()
def status(*, socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """Say how the daemon and its batch system are."""
    found = client(socket).status()
    if as_json:
        output.emit(found)
        return
    output.say(found["summary"])
    jobs = ", ".join(f"{count} {state}" for state, count in found["jobs"].items() if count)
    nodes = ", ".join(f"{count} {state}" for state, count in found["nodes"].items() if count)
    output.fields(
        {
            "batch system": f"{found['batch']} {found['batch_version']}".strip(),
            "answered": _answered(found),
            "nodes": nodes or "none",
            "jobs": jobs or "none",
            "shadow": _shadow(found.get("shadow")),
            "stopgap": found["version"],
        }
    )
    for problem in found["problems"]:
        output.say(f"! {problem}")


def _shadow(found: Document | None) -> str:
    """Say what would have been done."""
    if found is None:
        return ""
    by_node = ", ".join(f"{count} on {node}" for node, count in found["evictions"].items())
    return (
        f"since {found['since']} {found['starts']} starts, {found['running']} jobs on nodes now, "
        f"evictions: {by_node or 'none'}"
    )


def _answered(found: Document) -> str:
    """Say how old the picture is that everything is decided on."""
    if found["batch_answered"] is None:
        return "not yet"
    age, took = found.get("batch_age_seconds"), found.get("batch_seconds")
    told = f"{found['batch_answered']}"
    if age is not None:
        told += f", {age:.0f} s ago"
    return told if took is None else f"{told}; the last question took {took:.2g} s"


@commands.command("nodes")
def list_nodes(*, socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """List the nodes: what they do and why they have no job."""
    found = client(socket).nodes()
    if as_json:
        output.emit(found)
    else:
        output.nodes(found)


@commands.command()
def vacate(
    *,
    node: Annotated[str, typer.Option(help="The node.")],
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", help="Kill what has not been saved by then.")
    ] = 60.0,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Empty a node now; returns when no process of a job is left on it."""
    answer = client(socket).vacate(node, wait)
    if as_json:
        output.emit(answer)
    else:
        output.say(
            f"{node} is empty after {answer['seconds']:.1f} s: "
            f"{answer['evicted']} evicted, {answer['killed']} killed"
        )


@commands.command()
def panic(
    nodes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NODE...]", help='Names or host lists such as "n[1-4]".'),
    ] = None,
    *,
    over: Annotated[bool, typer.Option("--over", help="They may be used again.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Jobs may lose work.")] = False,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Take everything of ours off all nodes, or these, within seconds, and keep it off."""
    names = expand(nodes or [])
    if not (over or yes):
        where = ", ".join(names) or "all nodes"
        output.complain(
            f"this takes every job off {where} within seconds: those that cannot be saved in two "
            "go back to their last checkpoints, and lose what they did since. Nothing is placed "
            "there until 'stopgap panic --over'",
            "'stopgap node drain' gives the jobs time; if they have none, add --yes",
        )
        raise typer.Exit(2)
    answers = client(socket).panic(names, over=over)
    if as_json:
        output.emit(answers)
    for answer in () if as_json else answers:
        output.say(_panicked(answer))
    if any(answer["reason"] for answer in answers):
        raise typer.Exit(1)


def _panicked(answer: Document) -> str:
    node, result = answer["node"], answer["result"].replace("_", " ")
    if answer["empty"] is None:
        return f"{node} {answer['reason'] or result}"
    if not answer["empty"]:
        return f"{node} is NOT proven empty after {answer['seconds']:.1f} s: {answer['reason']}"
    return (
        f"{node} is empty after {answer['seconds']:.1f} s: "
        f"{answer['evicted']} evicted, {answer['killed']} killed"
    )


@node_commands.command()
def drain(nodes: Nodes, *, socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """Close nodes to jobs; what runs there is evicted."""
    _each(nodes, client(socket).drain, _drained, as_json=as_json)


@node_commands.command()
def undrain(nodes: Nodes, *, socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """Open nodes to jobs again."""
    _each(nodes, client(socket).undrain, _drained, as_json=as_json)


@node_commands.command()
def gone(
    nodes: Nodes,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="They are switched off for certain.")] = False,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Say that nodes are dead: their jobs go on elsewhere, from their last checkpoints."""
    if not yes:
        output.complain(
            f"this says that no process on {', '.join(expand(nodes))} lives any more: its jobs go "
            "on elsewhere from their last checkpoints, and lose what they did since. If one still "
            "runs there, two copies of a job write to the same files",
            "switch the nodes off, or see that they are off, and add --yes",
        )
        raise typer.Exit(2)
    _each(nodes, client(socket).gone, _gone, as_json=as_json)


@node_commands.command()
def setup(
    nodes: Nodes,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell.")] = False,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Place the shim, its keys and the prolog on nodes, and register it."""
    ask = client(socket)
    _each(nodes, lambda node: ask.setup(node, dry_run=dry_run), _set_up, as_json=as_json)


@node_commands.command()
def probe(nodes: Nodes, *, socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """Run the canary on nodes: only those that pass get jobs."""
    unfit = False

    def told(answer: Document) -> str:
        nonlocal unfit
        unfit = unfit or not answer["fit"]
        return _probed(answer)

    _each(nodes, client(socket).probe, told, as_json=as_json)
    if unfit:
        raise typer.Exit(1)


def _each(
    names: list[str],
    ask: Callable[[str], Document],
    tell: Callable[[Document], str],
    *,
    as_json: bool,
) -> None:
    """Ask for each node; one that is refused does not keep the others from it."""
    answers: list[Document] = []
    refused = False
    for name in expand(names):
        try:
            answers.append(ask(name))
        except ClientRefusedError as exc:
            output.complain(f"{name}: {exc.error}", exc.hint)
            refused = True
            continue
        text = tell(answers[-1])
        if not as_json:
            for line in text.splitlines():
                output.say(line)
    if as_json:
        output.emit(answers)
    if refused:
        raise typer.Exit(1)


def _gone(answer: Document) -> str:
    jobs = ", ".join(map(str, answer["jobs"])) or "none"
    return f"{answer['node']} {answer['result'].replace('_', ' ')}; jobs that fall back: {jobs}"


def _drained(answer: Document) -> str:
    return f"{answer['node']} {answer['result'].replace('_', ' ')}"


def _set_up(answer: Document) -> str:
    verb = "would be changed" if answer["dry_run"] else "is set up"
    head = f"{answer['node']} {verb if answer['changed'] else 'needs nothing'}"
    return "\n".join([head, *(f"  {step}" for step in answer["steps"])])


def _probed(answer: Document) -> str:
    if answer["fit"]:
        head = f"{answer['node']} is fit: {answer['rounds']} rounds in {answer['seconds']:.1f} s"
        said = answer["fingerprint"]
        more = [f"{name}: {said[name]}" for name in ("incremental", "compress") if name in said]
        return "\n  ".join([head, *filter(None, [answer["reason"], *more])])
    return f"{answer['node']} is not fit: {answer['reason']}"
