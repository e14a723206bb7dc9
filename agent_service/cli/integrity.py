"""The commands by which the agent's records prove themselves, are moved, and are written anew."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from agent_service.cli.exported_file import verify as verify_file
from agent_service.cli.migrating import into_sqlite, into_stream
from agent_service.cli.options import AsJson, ConfigNearby, Run, named
from agent_service.cli.outcome import tell, tell_of
from agent_service.cli.run_folder import rebuild as rebuilt
from agent_service.cli.run_folder import verify as verify_one
from agent_service.cli.whole_store import verify_all
from groundwork.service.commands import examples

commands = typer.Typer()

FILE_SUFFIX = ".zip"


def _is_file(text: str | None) -> bool:
    return bool(text) and (str(text).endswith(FILE_SUFFIX) or "/" in str(text))


def _run_or_file(text: str | None) -> str | None:
    return text if _is_file(text) else named(text)


RunToVerify = Annotated[
    str | None,
    typer.Argument(
        help="The run's id, the beginning of it, or `last`; or a file that `agentic export` has made.",
        callback=_run_or_file,
        metavar="RUN|FILE",
    ),
]


@commands.command(
    epilog=examples("agentic verify RUN", "agentic verify --all --against-bus", "agentic verify RUN.zip"),
)
def verify(
    run: RunToVerify = None,
    every: Annotated[bool, typer.Option("--all", help="All runs of the store.")] = False,
    against_bus: Annotated[
        bool, typer.Option("--against-bus", help="Compare also with what the bus was told; for all runs.")
    ] = False,
    key: Annotated[
        str | None,
        typer.Option(
            help="Of a file: the public key that it must be signed with (`agentic keys list`).", metavar="KEY"
        ),
    ] = None,
    config: ConfigNearby = None,
    as_json: AsJson = False,
) -> None:
    """It reads only, while the agent runs or not. What was changed is named. A file of exported runs is checked
    anywhere: it needs neither store nor bus."""
    every = every or against_bus
    if every == (run is not None):
        raise typer.BadParameter("name one run, or give --all")
    if run is None:
        tell_of(verify_all(config, against_bus=against_bus), as_json=as_json)
    if _is_file(run):
        tell(verify_file(Path(run), key), as_json=as_json)
    tell_of(verify_one(run, config), as_json=as_json)


class Kind(StrEnum):
    """Of stores, as settings call them."""

    SQLITE = "sqlite"
    JETSTREAM = "jetstream"


@commands.command(
    epilog=examples("agentic migrate --from sqlite --to jetstream", "agentic migrate --from jetstream --to sqlite"),
)
def migrate(
    source: Annotated[Kind, typer.Option("--from", help="What kind of store the runs are in.")],
    target: Annotated[Kind, typer.Option("--to", help="What kind of store they are to be in.")],
    sqlite: Annotated[
        Path | None,
        typer.Option(help="The folder of the SQLite store, if it is not that of the configuration.", metavar="FOLDER"),
    ] = None,
    config: ConfigNearby = None,
    as_json: AsJson = False,
) -> None:
    """No agent may run. Every entry is held against what it was. The old store is left as it is, and barred.
    Interrupted, it is finished by the same command."""
    if source is target:
        raise typer.BadParameter(f"the runs are in {source} already: name another kind of store with --to")
    move = into_stream if target is Kind.JETSTREAM else into_sqlite
    tell_of(move(config, sqlite), as_json=as_json)


@commands.command(epilog=examples("agentic rebuild RUN", "agentic rebuild last"))
def rebuild(run: Run, config: ConfigNearby = None, as_json: AsJson = False) -> None:
    """While the agent runs or not. The bus is needed only for artifacts that are not in the folder as they were."""
    tell_of(rebuilt(run, config), as_json=as_json)
