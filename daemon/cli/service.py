"""Commands that load the daemon itself; the only ones that do."""

from pathlib import Path
from typing import Annotated

import typer

from daemon.cli import output

commands = typer.Typer()
config_commands = typer.Typer(no_args_is_help=True)

_File = Annotated[
    Path,
    typer.Option("--config", envvar="STOPGAP_CONFIG", metavar="FILE", help="The configuration."),
]
_DEFAULT = Path("/etc/stopgap/config.toml")


@commands.command()
def serve(*, config: _File = _DEFAULT) -> None:
    """Run the daemon in the foreground."""
    from daemon import service  # noqa: PLC0415  other commands do not need the daemon
    from daemon.api.server import ListenError  # noqa: PLC0415
    from daemon.config import ConfigError  # noqa: PLC0415

    try:
        service.run(config)
    except ConfigError as exc:
        # Told apart from a crash, so that systemd does not try again and again.
        _tell(exc.path, exc.problems)
        raise typer.Exit(2) from exc
    except (ListenError, service.StartError) as exc:
        output.complain(str(exc))
        raise typer.Exit(1) from exc


@config_commands.command()
def check(*, config: _File = _DEFAULT) -> None:
    """Tell everything that is wrong with a configuration."""
    from daemon import service  # noqa: PLC0415  other commands do not need the daemon
    from daemon.config import ConfigError  # noqa: PLC0415

    try:
        findings = tuple(service.check(config))
    except ConfigError as exc:
        _tell(config, exc.problems)
        raise typer.Exit(1) from exc
    output.say(f"{config} is usable{', but at the site:' if findings else ''}")
    for finding in findings:
        output.say(f"  {output.clean(finding)}")


@config_commands.command()
def example() -> None:
    """Print a configuration with every key, its default and its reason."""
    from daemon import config_example  # noqa: PLC0415  other commands do not need the models

    typer.echo(config_example.text(), nl=False)


def _tell(path: Path, problems: tuple[str, ...]) -> None:
    output.complain(f"{path} is not usable:")
    for problem in problems:
        typer.echo(f"  {output.clean(problem)}", err=True)
