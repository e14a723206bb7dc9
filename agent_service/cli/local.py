"""The command that looks at what this machine has."""

from typing import Annotated

import typer

from agent_service.cli.options import AsJson, ConfigNearby
from agent_service.cli.room_used import used
from agent_service.cli.working import awaited
from groundwork.service.commands import examples

commands = typer.Typer()


@commands.command(epilog=examples("agentic du", "agentic du run_01JD", "agentic du --json"))
def du(
    run: Annotated[str | None, typer.Argument(help="Only what this run takes.", metavar="RUN")] = None,
    config: ConfigNearby = None,
    as_json: AsJson = False,
) -> None:
    """Say what everything takes on the disk. It changes nothing."""
    awaited(used(run, config, as_json=as_json))
