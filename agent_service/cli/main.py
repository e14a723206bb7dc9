"""The command `agentic`: its commands put together."""

from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from agent_service.cli import output
from agent_service.cli.commands import Agentic
from groundwork.service import commands
from groundwork.service.commands import completion_of, examples, told_to_a_shell
from groundwork.service.installed import installed_version

NAME = "agentic"

app = typer.Typer(
    name=NAME,
    cls=Agentic,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("completion", rich_help_panel="Groups of more commands", epilog=examples(*told_to_a_shell(NAME)))(
    completion_of(NAME)
)


@app.callback(invoke_without_command=True)
def about(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Durable, goal-directed runs on a NATS bus.

    Begin with `agentic dev`, or `agentic init`. Exit codes are in docs/CONFIGURATION.md.

    What messages name as docs/… is at https://github.com/agentic-loop/agentic-loop/tree/main/docs
    """
    if version:
        output.draw(f"{NAME} {installed_version()}")
    elif context.invoked_subcommand is None:
        output.draw(context.get_help())


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command line. Raises SystemExit; unknown errors stay."""
    commands.run(app, NAME, arguments)
