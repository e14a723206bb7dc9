"""The commands of `ductile-gateway`, put together, and the one place where errors become words and exit codes."""

import asyncio
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from ductile_gateway.cli import authoring, backups, exits, installing
from ductile_gateway.cli.authoring import ConfigNearby, ToolsFolder
from groundwork.service.completion import completion_of, told_to_a_shell
from groundwork.service.errors import Failure, Misconfigured, TryAgain, causes

app = typer.Typer(
    name=exits.NAME,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Config = Annotated[
    Path | None, typer.Option(help="The configuration file. Without it: ./agentic.yaml, if there is one.")
]
Stores = StrEnum("Stores", ["JETSTREAM", "SQLITE"])


@app.callback(invoke_without_command=True)
def about(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Carries the tool requests of agents to their tools: plugins that it runs itself, or those of a Ductile.

    What messages name as docs/… is at https://github.com/agentic-loop/agentic-loop/tree/main/docs
    """
    if version:
        from groundwork.service.installed import installed_version

        sys.stdout.write(f"{exits.NAME} {installed_version()}\n")
    elif context.invoked_subcommand is None:
        sys.stdout.write(f"{context.get_help()}\n")


@app.command()
def serve(
    config: Config = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Make the gateway end that owns the bus, and go on in its place.")
    ] = False,
) -> None:
    """Run the gateway, until SIGTERM or Ctrl-C. Its log is on standard error."""
    from ductile_gateway.cli.serve import serve as run

    raise typer.Exit(run(config, take_over=take_over))


@app.command()
def check(
    config: ConfigNearby = None,
    tools: ToolsFolder = None,
    settings_only: Annotated[
        bool, typer.Option("--settings-only", help="Look at the settings, and ask nobody.")
    ] = False,
) -> None:
    """List the tools that there would be, and say what is wrong. Exit code 78 where something is, or is left out."""
    if settings_only:
        from ductile_gateway.plugins.boxes import boundary_of
        from ductile_gateway.store import ahead

        settings = exits.settings_of(config)
        if coming := "" if settings.shared else ahead(settings.store):
            sys.stdout.write(f"{coming}\n")
        if settings.runner == "plugins":
            boundary_of(settings.plugins)
        return
    from ductile_gateway.cli.checking import check as look

    raise typer.Exit(look(exits.settings_for_tools(config, tools)))


app.add_typer(authoring.commands)
app.add_typer(backups.commands)
app.add_typer(installing.commands, name="ductile")


@app.command()
def prune(
    config: Config = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and do nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Have the ledger forget what its time is over, and give the room back. A gateway that runs does so by itself."""
    from ductile_gateway.cli.pruning import prune as forget

    forget(exits.settings_of(config), dry_run=dry_run, as_json=as_json)


@app.command()
def trust(
    config: Config = None,
    again: Annotated[
        bool, typer.Option("--again", help="Forget what was pinned, and pin the keys that the agent tells now.")
    ] = False,
) -> None:
    """Show the keys by which the agent's word is known. Exit code 1 where it tells one that is not trusted."""
    from ductile_gateway.cli.trusting import trust as look

    try:
        is_trusted = asyncio.run(look(exits.settings_of(config), again=again))
    except (Misconfigured, TryAgain) as error:
        sys.stdout.write(f"{error}\n")
        code = exits.MISCONFIGURED if isinstance(error, Misconfigured) else exits.UNREACHABLE
        raise typer.Exit(code) from None
    raise typer.Exit(0 if is_trusted else exits.FAILED)


@app.command()
def migrate(
    config: Config = None,
    to: Annotated[Stores, typer.Option(help="Where the ledger is to be.")] = Stores.JETSTREAM,
    sqlite: Annotated[
        Path | None, typer.Option(help="The folder of the database, if not that of the settings.", metavar="FOLDER")
    ] = None,
) -> None:
    """Move the ledger from the database of one gateway into the stream of several, or back."""
    from ductile_gateway.cli.migrating import migrate as move

    asyncio.run(move(exits.settings_of(config), to=to.value, sqlite=sqlite))


_NOW = "\n".join(("\b", "Examples:", *(f"  {line}" for line in told_to_a_shell(exits.NAME))))
app.command("completion", epilog=_NOW)(completion_of(exits.NAME))


def main(arguments: Sequence[str] | None = None, *, name: str = exits.NAME) -> NoReturn:
    """Run one command line, typed as `name`. Raises SystemExit; an error that nobody foresaw is raised as it is."""
    try:
        code = app(sys.argv[1:] if arguments is None else list(arguments), prog_name=name, standalone_mode=False)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else name
        told = error.format_message().replace(": Value error, ", ": ").rstrip(".")
        _complain(f"{told}: see `{command} --help`", exits.USAGE, name)
    except Exception as error:
        found = list(causes(error))
        if not all(isinstance(cause, Failure) for cause in found):
            raise
        _complain("; ".join(dict.fromkeys(map(str, found))), exits.code_of(error), name)
    sys.exit(code or 0)


def _complain(text: str, code: int, name: str) -> NoReturn:
    sys.stderr.write(f"{name}: {text}\n")
    sys.exit(code)
