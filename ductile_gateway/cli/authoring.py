"""The commands for whoever writes a tool: `new` and `call`."""

import asyncio
import json
import os
import shlex
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from ductile_gateway.authoring.calling import NotCallable
from ductile_gateway.authoring.calling import call as make_call
from ductile_gateway.authoring.making import EXAMPLE, CannotMake, Language, make
from ductile_gateway.cli import exits
from ductile_gateway.cli.options import AsJson, ConfigNearby, ToolsFolder
from ductile_gateway.cli.showing import as_document, as_text, keep
from groundwork.service import strict
from groundwork.service.beginning import INTERRUPTED
from groundwork.service.commands import examples
from groundwork.service.errors import TryAgain, Unreachable
from groundwork.service.exits import Exit
from groundwork.service.installed import invocation
from groundwork.service.serving import cancelled_by_signals

T = TypeVar("T")

commands = typer.Typer()


def _of_gateway(*lines: str) -> str:
    return examples(*(f"{exits.NAME} {line}" for line in lines))


@commands.command(epilog=_of_gateway("new weather", "new weather --lang bash"))
def new(
    name: Annotated[str, typer.Argument(help="What the tool is called.", metavar="NAME")],
    lang: Annotated[Language, typer.Option(help="The language of its program.")] = Language.PYTHON,
    tools: Annotated[
        Path,
        typer.Option("--tools", help="The folder that holds your tools; made, if it is not there.", metavar="FOLDER"),
    ] = Path("tools"),
) -> None:
    """It works as it is."""
    try:
        made = make(name, lang, tools)
    except CannotMake as error:
        raise typer.BadParameter(str(error)) from error
    agentic = invocation("agentic", "agent_service")
    gateway = invocation(exits.NAME, "ductile_gateway")
    folder, script = shlex.quote(str(tools)), shlex.quote(str(made / "script.yaml"))
    sys.stdout.write(
        f"{made} is made: {', '.join(sorted(path.name for path in made.iterdir()))}\n\n"
        f"  {gateway} check --tools {folder}\n"
        f"  {gateway} call --tools {folder} {name} handle '{EXAMPLE}'\n"
        f"  {agentic} dev --tools {folder} --script {script}\n"
        f"  {agentic} run --watch 'one two three'    # in another terminal\n"
    )


@commands.command(
    epilog=_of_gateway("""call words handle '{"text": "one two three"}'""", "call text-report handle - <arguments.json")
)
def call(
    tool: Annotated[str, typer.Argument(help="The tool.", metavar="TOOL")],
    command: Annotated[str, typer.Argument(help="Its command.", metavar="COMMAND")],
    arguments: Annotated[
        str, typer.Argument(help="A JSON object; - reads it from standard input.", metavar="ARGUMENTS")
    ] = "{}",
    config: ConfigNearby = None,
    tools: ToolsFolder = None,
    artifacts: Annotated[
        Path | None, typer.Option(help="Keep the artifacts that it brings in this folder.", metavar="FOLDER")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """A write does what it does.

    Exit code 1 where the tool fails. An argument that is to hold an artifact names a file of this machine.
    """
    settings = exits.settings_for_tools(config, tools)
    try:
        called = asyncio.run(_until_told(make_call(settings, tool, command, _object(arguments))))
    except NotCallable as error:
        raise typer.BadParameter(str(error)) from error
    except TryAgain as error:
        raise Unreachable(str(error)) from error
    except asyncio.CancelledError:
        raise typer.Exit(INTERRUPTED) from None
    if artifacts:
        keep(called, artifacts)
    sys.stdout.write(f"{json.dumps(as_document(called), ensure_ascii=False)}\n" if as_json else as_text(called))
    raise typer.Exit(Exit.FAILED if called.outcome.status == "error" else Exit.OK)


async def _until_told(work: Coroutine[Any, Any, T]) -> T:
    with cancelled_by_signals(lambda: None):
        return await work


def _object(arguments: str) -> dict[str, Any]:
    try:
        given = strict.read(sys.stdin.buffer.read() if arguments == "-" else os.fsencode(arguments))
    except strict.NotStrictJson as error:
        flaw = f"what is given as arguments {error}"
        raise typer.BadParameter(f"{flaw}: give a JSON object, such as '{EXAMPLE}'") from error
    if not isinstance(given, dict):
        raise typer.BadParameter(f"the arguments are no JSON object: give one, such as '{EXAMPLE}'")
    return given
