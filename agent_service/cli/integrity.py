"""The commands by which the agent's records prove themselves, are moved, and are written anew."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from agent_service.cli import output
from agent_service.cli.exits import Exit
from agent_service.cli.exported_file import verify as verify_file
from agent_service.cli.migrating import into_sqlite, into_stream
from agent_service.cli.options import AsJson, ConfigNearby, Run, named
from agent_service.cli.run_folder import rebuild as rebuilt
from agent_service.cli.run_folder import verify as verify_one
from agent_service.cli.whole_store import verify_all
from agent_service.cli.working import awaited, log_only_what_is_not_said
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
    """Check that a run is as its agent wrote it: row, journal and files. Exit code 1 when not.

    It reads only, while the agent runs or not. What was changed is named. A file of exported runs is checked anywhere:
    it needs neither store nor bus.
    """
    every = every or against_bus
    if every == (run is not None):
        raise typer.BadParameter("name one run, or give --all")
    log_only_what_is_not_said()
    if run and _is_file(run):
        of_file = verify_file(Path(run), key)
        output.tell(of_file.for_programs(), str(of_file), as_json=as_json)
        raise typer.Exit(Exit.OK if of_file.ok else Exit.FAILED)
    if run is None:
        of_all = awaited(verify_all(config, against_bus=against_bus))
        output.tell(of_all.for_programs(), str(of_all), as_json=as_json)
        raise typer.Exit(Exit.OK if of_all.ok else Exit.FAILED)
    verdict = awaited(verify_one(run, config))
    output.tell(verdict.for_programs(), str(verdict), as_json=as_json)
    raise typer.Exit(Exit.OK if verdict.ok else Exit.FAILED)


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
    """Move all runs from the store of one agent into the stream of several, or back.

    No agent may run. Every entry is held against what it was. The old store is left as it is, and barred.
    Interrupted, it is finished by the same command.
    """
    if source is target:
        raise typer.BadParameter(f"the runs are in {source} already: name another kind of store with --to")
    log_only_what_is_not_said()
    move = into_stream if target is Kind.JETSTREAM else into_sqlite
    moved = awaited(move(config, sqlite))
    output.tell(moved.for_programs(), str(moved), as_json=as_json)


@commands.command(epilog=examples("agentic rebuild RUN", "agentic rebuild last"))
def rebuild(run: Run, config: ConfigNearby = None, as_json: AsJson = False) -> None:
    """Write a run's folder anew from its journal, byte for byte, and tell what that changed.

    While the agent runs or not. The bus is needed only for artifacts that are not in the folder as they were.
    """
    log_only_what_is_not_said()
    made = awaited(rebuilt(run, config))
    output.tell(made.for_programs(), str(made), as_json=as_json)
