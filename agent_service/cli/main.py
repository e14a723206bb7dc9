"""The command `agentic`: its commands put together, and the one place where errors become words and exit codes."""

import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from agent_service.cli import output
from agent_service.cli.commands import Agentic
from agent_service.cli.errors import Exit, NotDone, complaint_of
from groundwork.service.commands import completion_of, examples, told_to_a_shell
from groundwork.service.installed import installed_version
from groundwork.service.invisible import visible

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
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    output.set_up()
    try:
        code = app(arguments, prog_name=NAME, standalone_mode=False)
    except output.ClosedPipe:
        output.forget_stdout()
        sys.exit(Exit.CLOSED_PIPE)
    except typer.TyperException as error:
        _complain(_usage(error), arguments)
    except Exception as error:
        complaint = complaint_of(error)
        if complaint is None:
            raise
        _complain(complaint, arguments)
    sys.exit(code or Exit.OK)


def _usage(error: typer.TyperException) -> NotDone:
    context = getattr(error, "ctx", None)
    command = context.command_path if context else NAME
    message = error.format_message().replace(": Value error, ", ": ").rstrip(".")
    return NotDone(f"{message}: see `{command} --help`", Exit.USAGE)


def _complain(complaint: NotDone, arguments: Sequence[str]) -> NoReturn:
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--json" in options:
        output.complain(output.as_json(complaint.for_programs()))
    else:
        output.complain(f"{NAME}: {visible(str(complaint))}")
    sys.exit(complaint.exit_code)
