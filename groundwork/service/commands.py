"""Programs of many commands, which are imported when they are called and end with an exit code."""

import io
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, ClassVar, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from groundwork.service.errors import Exit, NotDone, complaint_of, plain_words
from groundwork.service.invisible import json_visible, visible
from groundwork.service.program import installed_version


@dataclass(frozen=True, slots=True)
class CommandPlace:
    """Place of a command: `commands`, a Typer, of `module` has it or its group. `about`: its line in the help."""

    module: str
    about: str
    panel: str


Table = Mapping[str, CommandPlace]
_COLUMNS = re.compile(" {2,}")


def table_of(package: str, text: str) -> dict[str, CommandPlace]:
    """Commands by name. `text` has a line per panel, and below it one per command: its name (`NAME`, `GROUP NAME`, or
    `GROUP` for the line of that group in the help), its module in `package`, and its line in the help."""
    table, panel = dict[str, CommandPlace](), ""
    for line in filter(None, text.splitlines()):
        match _COLUMNS.split(line.strip()):
            case [name, module, about]:
                table[name] = CommandPlace(f"{package}.{module}", about, panel)
            case [panel]:
                pass
    return table


class LazyGroup(TyperGroup):
    """Commands of `table`, in its order, then registered ones. Listing them imports none. A command of a group can be
    called without the group's name, too."""

    table: ClassVar[Table] = {}

    def __init__(self, *, commands: Any = (), **attributes: Any) -> None:
        self._places = {word.rpartition(" ")[2]: at for word, at in self.table.items()}
        listed: dict[str, Any] = {
            name: TyperCommand(name, help=at.about, rich_help_panel=at.panel, hidden=name not in self.table)
            for name, at in self._places.items()
        }
        super().__init__(commands=listed | dict(commands), **attributes)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, following = super().resolve_command(ctx, args)
        at = self._places.get(name or "")
        return name, self._loaded(name or "", at) if at else command, following

    def _loaded(self, name: str, at: CommandPlace) -> Any:
        within = {word: at for word, at in self.table.items() if word.startswith(f"{name} ")}
        if within:
            part = {word.removeprefix(f"{name} "): replace(at, panel="Commands") for word, at in within.items()}
            return type(name, (LazyGroup,), {"table": part})(name=name, help=at.about, no_args_is_help=True)
        loaded = typer.main.get_group(import_module(at.module).commands)
        loaded.name = name
        command = loaded.commands.get(name, loaded)
        paragraphs = (command.help or "").split("\n\n")
        command.help = "\n\n".join((at.about, *(" ".join(part.split()) for part in paragraphs))).strip()
        return command


def option(help_: str, *names: str, default: Any = None, **more: Any) -> Any:
    return typer.Option(default, *names, help=help_, **more)


def flag(help_: str, *names: str) -> Any:
    return option(help_, *names, default=False)


def argument(help_: str, metavar: str, *, default: Any = ..., **more: Any) -> Any:
    return typer.Argument(default, help=help_, metavar=metavar, **more)


def examples(*lines: str) -> str:
    """Epilog of a command's help; lines are not wrapped."""
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))


def say(text: str) -> None:
    """Prints text to standard output. Characters that could steer a terminal are escaped."""
    typer.echo(visible(text))


def program(name: str, group: type[LazyGroup], about: str) -> typer.Typer:
    """`about`: first line of the help."""
    app = typer.Typer(
        name=name,
        cls=group,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback(invoke_without_command=True, help=about)
    def begin(
        context: typer.Context,
        version: bool = flag("Print the version.", "--version"),
    ) -> None:
        if version:
            sys.stdout.write(f"{name} {installed_version()}\n")
        elif context.invoked_subcommand is None:
            sys.stdout.write(f"{context.get_help()}\n")

    return app


def run(app: typer.Typer, name: str, arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs one command line. Raises SystemExit, and unknown errors as they are."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for characters that the terminal's encoding lacks
    try:
        code = app(arguments, prog_name=name, standalone_mode=False)
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as ended:
        if isinstance(ended, SystemExit) and not isinstance(ended.__context__, BrokenPipeError):
            raise  # typer and rich turn a closed pipe into exit code 1
        code = Exit.CLOSED_PIPE
    except typer.Abort:
        sys.stderr.write(f"\n{name}: left, and nothing was done\n")
        code = Exit.INTERRUPTED
    except Exception as error:  # noqa: BLE001 # an unknown one is raised again
        code = _report(error, name, arguments)
    try:
        sys.stdout.flush()
    except OSError:  # else Python reports it at exit, with a code of its own
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code or Exit.OK)


def _report(error: Exception, name: str, arguments: Sequence[str]) -> Exit:
    """Prints the error, and returns its exit code. Raises an unknown one again."""
    complaint = _usage(error, name) if isinstance(error, typer.TyperException) else complaint_of(error)
    if complaint is None:
        raise error
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--json" in options:
        text = json_visible(json.dumps(complaint.for_programs(), ensure_ascii=False))
    else:
        text = f"{name}: {visible(str(complaint))}"
    if str(complaint):
        sys.stderr.write(f"{text}\n")
    return complaint.exit_code


def _usage(error: typer.TyperException, name: str) -> NotDone:
    context, message = getattr(error, "ctx", None), error.format_message().rstrip(".")
    if not message:  # a group was named alone, and its help was shown
        return NotDone("", Exit.OK)
    return NotDone(f"{plain_words(message)}: see `{context.command_path if context else name} --help`", Exit.USAGE)
