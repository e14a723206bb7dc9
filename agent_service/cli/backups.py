"""The commands by which what the agent and the gateway keep is backed up, and brought back."""

from typing import Annotated

import typer

from agent_service.cli import artifacts_back, backing_up, restoring
from agent_service.cli.options import AsJson, ConfigNearby
from agent_service.cli.outcome import tell_of
from groundwork.service.commands import examples

commands = typer.Typer()

Place = Annotated[str, typer.Argument(help="The backup file, or a folder for it.", metavar="FILE|FOLDER")]


@commands.command(
    epilog=examples("agentic backup /backups/agentic.backup", "agentic backup /backups/ --keep 30"),
)
def backup(
    place: Place,
    with_keys: Annotated[
        bool, typer.Option("--with-keys", help="Also the files with the keys, which nobody else may have.")
    ] = False,
    keep: Annotated[
        int | None, typer.Option(min=1, help="Keep so many backups in the file, the newest; without it all.")
    ] = None,
    config: ConfigNearby = None,
    as_json: AsJson = False,
) -> None:
    """A later backup into the same file adds only what is new. Copy the file to another machine afterwards. Exit code 1
    where something was left out."""
    order = backing_up.Order(place=place, with_keys=with_keys, most=keep)
    tell_of(backing_up.backup(config, order), as_json=as_json)


@commands.command(
    epilog=examples(
        "agentic restore /backups/agentic.backup",
        "agentic restore /backups/agentic.backup --stopped",
        "agentic restore /backups/agentic.backup --backup 20261123T030000Z",
        "agentic restore --artifacts",
    ),
)
def restore(
    place: Annotated[
        str | None, typer.Argument(help="The backup file, or the folder that it is in.", metavar="FILE|FOLDER")
    ] = None,
    backup: Annotated[
        str | None, typer.Option(help="Which backup of the file; the newest without it.", metavar="NAME")
    ] = None,
    stopped: Annotated[
        bool, typer.Option("--stopped", help="Leave everything stopped, until `agentic go-on`.")
    ] = False,
    moved: Annotated[
        bool,
        typer.Option("--moved", help="Nothing was done since the backup, as in a move: no write is in doubt for it."),
    ] = False,
    new_keys: Annotated[
        bool, typer.Option("--new-keys", help="Take it unproved, with new keys: the old ones are lost.")
    ] = False,
    artifacts: Annotated[
        bool,
        typer.Option(
            "--artifacts", help="Without a backup: what the bucket has lost, from the runs' folders, by its hash."
        ),
    ] = False,
    config: ConfigNearby = None,
    as_json: AsJson = False,
) -> None:
    """Neither service may run, and nothing is overwritten. Make the streams first, with `agentic setup`. Interrupted,
    it is finished by the same command. With --artifacts both may run, and exit code 1 says that some are lost."""
    if artifacts == (place is not None):
        raise typer.BadParameter("name a backup, or give --artifacts by itself")
    if place is None:
        tell_of(artifacts_back.bring_back(config), as_json=as_json)
    order = restoring.Order(place=place, backup=backup, stopped=stopped, moved=moved, new_keys=new_keys)
    tell_of(restoring.restore(config, order), as_json=as_json)
