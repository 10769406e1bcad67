"""Clients on other machines: the app folder for Flower, and running it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from acclimate.cli.printing import Commands

commands = Commands(help="Clients on other machines, by Flower (docs/flower.md).")


@commands.callback(no_args_is_help=True)
def _root() -> None:
    pass


@commands.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Folder to make.")],
    experiment: Annotated[str, typer.Argument(help="A YAML file, or the name of a shipped experiment.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="KEY=VALUE, as for 'run'.")] = None,
) -> None:
    """Make an app folder for an experiment."""
    from acclimate.experiment.reader import read
    from acclimate.flower.app import make_app

    for file in make_app(folder, read(experiment, overrides or [])):
        typer.echo(f"written: {file}")


@commands.command()
def run(
    folder: Annotated[Path, typer.Argument(help="An app folder, as 'init' makes it.")],
    connection: Annotated[str | None, typer.Argument(help="A connection of Flower's configuration.")] = None,
    config: Annotated[
        list[str] | None, typer.Option("--config", "-c", help="KEY=VALUE of the app's configuration (repeatable).")
    ] = None,
) -> None:
    """Run an app folder on a SuperLink; unlike 'flwr run', this fails where the run does."""
    from acclimate.flower.deploy import quiet, submit

    submit(folder, connection, config or [], quiet())
