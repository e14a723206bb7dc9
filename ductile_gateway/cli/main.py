"""The commands of `ductile-gateway`, put together."""

import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from ductile_gateway.cli import exits
from ductile_gateway.cli.options import Config
from groundwork.service import commands
from groundwork.service.commands import LazyGroup, completion_of, examples, table_of, told_to_a_shell
from groundwork.service.installed import installed_version


class Gateway(LazyGroup):
    """The commands whose modules are loaded when they are called."""

    table = table_of("""
Commands
  ductile_gateway.cli.checking
    check       List the tools that there would be, and say what is wrong.
  ductile_gateway.cli.authoring
    new         Make a first tool to begin with: a manifest, a program, and a script that calls it.
    call        Call a tool by hand, as the gateway would for an agent, and show what it answers.
  ductile_gateway.cli.backing_up
    backup      Add what the gateway remembers to a backup file, while it runs.
  ductile_gateway.cli.restoring
    restore     Bring back what the gateway remembered from a backup file. Nothing is overwritten.
  ductile_gateway.cli.installing
    ductile     Add agents to a Ductile that is there, and take them out again.
  ductile_gateway.cli.pruning
    prune       Have the ledger forget what its time is over, and give the room back.
  ductile_gateway.cli.trusting
    trust       Show the keys by which the agent's word is known.
""")


app = typer.Typer(
    name=exits.NAME,
    cls=Gateway,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def about(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Carries the tool requests of agents to their tools: plugins that it runs itself, or those of a Ductile.

    What messages name as docs/… is at https://github.com/agentic-loop/agentic-loop/tree/main/docs
    """
    if version:
        sys.stdout.write(f"{exits.NAME} {installed_version()}\n")
    elif context.invoked_subcommand is None:
        sys.stdout.write(f"{context.get_help()}\n")


@app.command(rich_help_panel="Commands")
def serve(
    config: Config = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Make the gateway end that owns the bus, and go on in its place.")
    ] = False,
) -> None:
    """Run the gateway, until SIGTERM or Ctrl-C. Its log is on standard error."""
    from ductile_gateway.cli.serve import serve as run  # 45 ms that no other command needs

    raise typer.Exit(run(config, take_over=take_over))


app.command("completion", epilog=examples(*told_to_a_shell(exits.NAME)), rich_help_panel="Commands")(
    completion_of(exits.NAME)
)


def main(arguments: Sequence[str] | None = None, *, name: str = exits.NAME) -> NoReturn:
    """Run one command line, typed as `name`. Raises SystemExit; unknown errors stay."""
    commands.run(app, name, arguments)
