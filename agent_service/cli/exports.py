"""The command by which single runs leave a store as a file."""

from pathlib import Path
from typing import Annotated

import typer

from agent_service.cli.exporting import export as write
from agent_service.cli.options import AsJson, ConfigNearby, Run
from agent_service.cli.outcome import tell_of
from groundwork.service.commands import examples

commands = typer.Typer()


@commands.command(epilog=examples("agentic export RUN", "agentic export last /tmp/it.zip"))
def export(
    run: Run,
    file: Annotated[
        Path | None,
        typer.Argument(help="The file, or a folder for it; without it RUN.zip, here.", metavar="FILE|FOLDER"),
    ] = None,
    config: ConfigNearby = None,
    as_json: AsJson = False,
) -> None:
    """While the agent runs or not. Any tool opens it, and `agentic verify FILE` checks it anywhere. Exit code 1 where
    something was left out."""
    tell_of(write(run, file, config), as_json=as_json)
