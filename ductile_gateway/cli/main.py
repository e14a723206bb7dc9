"""The commands of `ductile-gateway`, put together."""

from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from ductile_gateway.cli.options import NAME, Config
from groundwork.service import commands
from groundwork.service.commands import LazyGroup, table_of


class Gateway(LazyGroup):
    """The commands whose modules are loaded when they are called."""

    table = table_of("""
Commands
  ductile_gateway.cli.tools
    check       List the tools on offer, and what is wrong with them.
    new         Create a tool: a manifest, a program, and a script that calls it.
    call        Call a tool as the gateway would for an agent, and show its answer.
  ductile_gateway.cli.archive
    backup      Back up the gateway's ledger into a file, while it runs.
    restore     Restore the gateway's ledger from a backup. Nothing is overwritten.
  ductile_gateway.cli.installing
    ductile     Add agents to a Ductile, and remove them.
  ductile_gateway.cli.trusting
    trust       Show the keys that the agent's messages are verified with.
""")


app = commands.program(
    NAME,
    Gateway,
    """Carries the tool requests of agents to their tools: plugins that it runs itself, or those of a Ductile.

    What messages name as docs/… is at https://github.com/agentic-loop/agentic-loop/tree/main/docs
    """,
)


@app.command(rich_help_panel="Commands")
def serve(
    config: Config = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="End the gateway that owns the bus, and take its place.")
    ] = False,
) -> None:
    """Run the gateway until SIGTERM or Ctrl-C. It logs to standard error."""
    from ductile_gateway.app import run  # 45 ms that no other command needs

    raise typer.Exit(run(config, take_over=take_over))


def main(arguments: Sequence[str] | None = None, *, name: str = NAME) -> NoReturn:
    """Run one command line, typed as `name`. Raises SystemExit; unknown errors stay."""
    commands.run(app, name, arguments)
