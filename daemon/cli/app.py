"""The command ``stopgap``: its commands, and what becomes of their errors.

Exit status: 0 done, 1 refused, 2 misuse, 3 daemon unreachable.
"""

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from daemon.api.client import ClientRefusedError, DaemonUnreachableError
from daemon.cli import jobs, nodes, output, service, simulate


class _Stopgap(TyperGroup):
    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]  # typer hides its own type
        try:
            answer = super().invoke(ctx)
            sys.stdout.flush()
        except ClientRefusedError as exc:
            output.complain(exc.error, exc.hint)
            raise typer.Exit(1) from exc
        except DaemonUnreachableError as exc:
            output.complain(exc.error, exc.hint)
            raise typer.Exit(3) from exc
        except BrokenPipeError as exc:
            # The reader has seen enough.
            _drop_output()
            raise typer.Exit(0) from exc
        except OSError as exc:
            _drop_output()
            output.complain(f"the answer could not be written: {exc.strerror or exc}")
            raise typer.Exit(1) from exc
        return answer


def _drop_output() -> None:
    """See to it that the interpreter's last flush has nothing to complain about."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


app = typer.Typer(
    name="stopgap",
    cls=_Stopgap,
    help="Low-priority jobs on nodes that the batch system leaves idle.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for part in (jobs, nodes, service, simulate):
    app.add_typer(part.commands)
app.add_typer(nodes.node_commands, name="node", help="Set nodes up, probe, drain them.")
app.add_typer(service.config_commands, name="config", help="Look at the configuration.")


def _version(wanted: bool) -> None:
    if wanted:
        # 0.05 s that others need not pay.
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

        try:
            typer.echo(f"stopgap {version('stopgap')}")
        except PackageNotFoundError:
            typer.echo("stopgap, run from its sources")
        raise typer.Exit


@app.callback()
def _options(
    *,
    _: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line."""
    app(prog_name="stopgap")
