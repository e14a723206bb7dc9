"""The commands by which what the gateway remembers is backed up, and brought back."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from ductile_gateway.cli import exits

commands = typer.Typer()

Config = Annotated[
    Path | None, typer.Option(help="The configuration file. Without it: ./agentic.yaml, if there is one.")
]
Place = Annotated[str, typer.Argument(help="The backup file, or a folder for it.", metavar="FILE|FOLDER")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


@commands.command()
def backup(
    place: Place,
    with_keys: Annotated[
        bool, typer.Option("--with-keys", help="Also the file with the keys, which nobody else may have.")
    ] = False,
    into: Annotated[str | None, typer.Option(hidden=True)] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Add what the gateway remembers to a backup file, while it runs. `agentic backup` does this too.

    For a gateway on a machine of its own: back up what the agent keeps where that runs, and before this.
    """
    from ductile_gateway.cli.backing_up import backup as back_up

    back_up(exits.settings_of(config), place, into=into, with_keys=with_keys, as_json=as_json)


@commands.command()
def restore(
    place: Place,
    backup: Annotated[str | None, typer.Option(help="Which one; the newest without it.", metavar="NAME")] = None,
    moved: Annotated[bool, typer.Option("--moved", help="Nothing has happened since: no write is in doubt.")] = False,
    new_keys: Annotated[bool, typer.Option("--new-keys", help="Take it as it is: the keys are lost.")] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Bring back what the gateway remembered from a backup file. The gateway must not run; nothing is overwritten."""
    from ductile_gateway.cli.restoring import Order
    from ductile_gateway.cli.restoring import restore as bring_back

    order = Order(place=place, backup=backup, moved=moved, new_keys=new_keys, as_json=as_json)
    asyncio.run(bring_back(exits.settings_of(config), order))
