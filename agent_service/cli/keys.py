"""The commands on the agent's keys: `agentic keys`. A running agent takes a change up within a second."""

from typing import Annotated

import typer

from agent_service.cli import key_file, output
from agent_service.cli.options import AsJson, ConfigNearby
from agent_service.cli.outcome import tell
from groundwork.service.commands import examples

commands = typer.Typer()

KeyId = Annotated[str, typer.Argument(help="As `agentic keys list` shows it.", metavar="ID")]


@commands.callback(invoke_without_command=True)
def about(context: typer.Context) -> None:
    """They are in one file beside the store (`agent.keys_file`): back it up with the store, and apart from it."""
    if context.invoked_subcommand is None:
        output.draw(context.get_help())


@commands.command(name="list", epilog=examples("agentic keys list", "agentic keys list --json"))
def list_(config: ConfigNearby = None, as_json: AsJson = False) -> None:
    """Show the keys, newest first: when each was made, and its public half, by which others know the agent's events."""
    tell(key_file.listed(config), as_json=as_json)


@commands.command(epilog=examples("agentic keys rotate"))
def rotate(config: ConfigNearby = None, as_json: AsJson = False) -> None:
    """Make a newer key. The older ones go on checking what was made with them."""
    tell(key_file.rotated(config), as_json=as_json)


@commands.command(epilog=examples("agentic keys retire k1f2e3d4"))
def retire(key: KeyId, config: ConfigNearby = None, as_json: AsJson = False) -> None:
    """Give an older key up: what was made with it is believed no longer, and requests that are out are not answered.

    Wait until no run is older than the key after it.
    """
    tell(key_file.retired(config, key), as_json=as_json)
