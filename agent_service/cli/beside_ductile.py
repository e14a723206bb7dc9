"""`agentic ductile install` and its like: commands of the gateway, which is the part that knows of Ductile."""

import subprocess
import sys

import typer

_GATEWAY = "from ductile_gateway.cli.main import main; main(name='agentic')"
"""Errors and help are told in the name of the command that was typed."""

commands = typer.Typer()


@commands.command(
    "ductile",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def ductile(context: typer.Context) -> None:
    command = [sys.executable, "-c", _GATEWAY, "ductile", *context.args]
    raise typer.Exit(subprocess.call(command))  # noqa: S603 - our own program
