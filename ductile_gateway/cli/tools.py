"""`ductile-gateway check`, `new` and `call`: for those who write tools. None starts the gateway.

`check` ends with 78 where something is wrong, or a chosen tool or command is left out; with 69 while Ductile does not
answer.
"""

import asyncio
import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ductile_gateway.authoring.calling import Called, NotCallable
from ductile_gateway.authoring.calling import call as make_call
from ductile_gateway.authoring.making import EXAMPLE, CannotMake, Language, advice, make
from ductile_gateway.calls.policy import Offers
from ductile_gateway.calls.results import output_of, reads_form
from ductile_gateway.cli.main import NAME, AsJson, ConfigNearby, ToolsFolder, settings_for_tools, settings_of
from ductile_gateway.ductile import discovery
from ductile_gateway.plugins.boxes import boundary_of, box_of
from ductile_gateway.plugins.process import plugin_environment
from ductile_gateway.plugins.runner import look_at_box
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.store import ahead
from ductile_gateway.tools.toolbox import Tools, find_tools
from groundwork.service import strict
from groundwork.service.commands import examples
from groundwork.service.errors import Exit, Misconfigured, TryAgain, Unreachable
from groundwork.service.installed import invocation
from schemas.catalog import ToolCommand
from schemas.status import Finding

commands = typer.Typer()

BRINGS = {
    "untrusted": ", brings untrusted content",
    "": ", counts as bringing untrusted content: nothing declares its `output`",
}


def check(settings: GatewaySettings) -> Exit:
    try:
        tools = asyncio.run(find_tools(settings))
        findings = asyncio.run(_of_runner(settings, tools))
    except TryAgain as error:
        raise Unreachable(str(error)) from error
    for finding in findings:
        remedy = f" -> {finding.remedy}" if finding.remedy else ""
        sys.stdout.write(f"{finding.name}: {finding.text}{remedy}\n")
    for offer in tools.catalog.tools:
        commands = ", ".join(f"{command.name} ({_kind(command)})" for command in offer.commands)
        brings = BRINGS.get(offer.output or "", "")
        sys.stdout.write(f"tool {offer.name}: plugin {offer.route}, {commands}, {offer.timeout_s:g} s{brings}\n")
    for problem in dict.fromkeys((*tools.problems, *tools.lacking)):
        sys.stdout.write(f"problem: {problem}\n")
    roots = settings.plugins.folders if settings.runner == "plugins" else ()
    for hint in (*advice(tools.plugins, roots), *_may_ask(settings, tools)):
        sys.stdout.write(f"advice: {hint}\n")
    is_usable = (tools.catalog.tools or tools.unheard) and not _left_out(settings, tools)
    if is_usable and not any(finding.mark == "wrong" for finding in findings):
        return Exit.OK
    are_away = tools.unheard and all(isinstance(why, TryAgain) for why in tools.unheard.values())
    return Exit.UNREACHABLE if is_usable and are_away else Exit.MISCONFIGURED


def _kind(command: ToolCommand) -> str:
    approve = f"approve {command.approve}" if command.approve else ""
    effect = command.effect if command.tier == "write" else None
    return ", ".join(filter(None, (command.tier, effect, approve)))


def _may_ask(settings: GatewaySettings, tools: Tools) -> Iterator[str]:
    asking = [offer.name for offer in tools.catalog.tools if reads_form(offer)] if settings.runner == "ductile" else []
    if asking:
        yield (
            f"a text of {', '.join(asking)} may ask for more in the tool's name: Ductile does not pass on the line "
            "`continues: false` of a manifest, so say `x-continues: false` in an `output_schema` of what never asks"
        )


def _left_out(settings: GatewaySettings, tools: Tools) -> bool:
    if settings.runner == "plugins" and settings.choices() is None:
        return not set(tools.problems) <= set(tools.lacking)
    offered = {offer.name: {command.name for command in offer.commands} for offer in tools.catalog.tools}
    chosen = [(name, choice) for name, choice in (settings.choices() or {}).items() if name not in tools.awaited]
    return any(name not in offered or set(choice.commands or ()) - offered[name] for name, choice in chosen)


async def _of_runner(settings: GatewaySettings, tools: Tools) -> Sequence[Finding]:
    if settings.runner == "plugins":
        environment = plugin_environment(os.environ, settings.plugins.environment, python=Path(sys.executable))
        return await look_at_box(box_of(settings.plugins, environment), tools.plugins.values(), environment)
    if settings.runner != "ductile":
        return ()
    offers = Offers()
    offers.replace(tools.catalog)
    looks = (discovery.look(ductile, offers, settings.ductiles) for ductile in settings.every_ductile().values())
    return [finding for found in await asyncio.gather(*looks) for finding in found]


@commands.command("check")
def check_command(
    config: ConfigNearby = None,
    tools: ToolsFolder = None,
    settings_only: Annotated[
        bool, typer.Option("--settings-only", help="Check the settings only, without a connection.")
    ] = False,
) -> None:
    """Exit code 78 if something is wrong or left out."""
    if settings_only:
        settings = settings_of(config)
        if coming := "" if settings.shared else ahead(settings.store):
            sys.stdout.write(f"{coming}\n")
        if settings.runner == "plugins":
            boundary_of(settings.plugins)
        return
    raise typer.Exit(check(settings_for_tools(config, tools)))


def _of_gateway(*lines: str) -> str:
    return examples(*(f"{NAME} {line}" for line in lines))


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
    gateway = invocation(NAME, "ductile_gateway")
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
    """A write is carried out.

    Exit code 1 if the tool fails. An artifact argument names a file of this machine.
    """
    settings = settings_for_tools(config, tools)
    try:
        called = asyncio.run(make_call(settings, tool, command, _object(arguments)))
    except NotCallable as error:
        raise typer.BadParameter(str(error)) from error
    except TryAgain as error:
        raise Unreachable(str(error)) from error
    except asyncio.CancelledError:
        raise typer.Exit(Exit.INTERRUPTED) from None
    if artifacts:
        _keep(called, artifacts)
    sys.stdout.write(f"{json.dumps(_as_document(called), ensure_ascii=False)}\n" if as_json else _as_text(called))
    raise typer.Exit(Exit.FAILED if called.outcome.status == "error" else Exit.OK)


def _object(arguments: str) -> dict[str, Any]:
    try:
        given = strict.read(sys.stdin.buffer.read() if arguments == "-" else os.fsencode(arguments))
    except strict.NotStrictJson as error:
        flaw = f"what is given as arguments {error}"
        raise typer.BadParameter(f"{flaw}: give a JSON object, such as '{EXAMPLE}'") from error
    if not isinstance(given, dict):
        raise typer.BadParameter(f"the arguments are no JSON object: give one, such as '{EXAMPLE}'")
    return given


def _as_document(called: Called) -> dict[str, Any]:
    outcome = called.outcome
    told: dict[str, Any] = {"status": outcome.status, "seconds": round(called.seconds, 3), "stderr": called.stderr}
    if outcome.status == "error":
        error = {"class": outcome.error_class, "message": outcome.message, "retryable": outcome.retryable}
        return told | {"error": error}
    return told | {"result": output_of(outcome, called.kept).model_dump(mode="json", exclude_none=True)}


def _as_text(called: Called) -> str:
    outcome = called.outcome
    if outcome.status == "error":
        again = "another try may help" if outcome.retryable else "another try does not help"
        lines = [f"✗ {outcome.error_class} after {called.seconds:.2f} s ({again})", outcome.message or ""]
    else:
        lines = [f"✓ {outcome.status} after {called.seconds:.2f} s", outcome.text]
    if outcome.continuation:
        lines.append(f"continuation: {outcome.continuation.model_dump_json(exclude_none=True)}")
    if outcome.output:
        lines.append(f"output: {json.dumps(dict(outcome.output), ensure_ascii=False)}")
    for one in called.kept:
        lines.append(f"artifact: {one.name} ({one.artifact.content_type}, {len(one.artifact.content)} bytes)")
    if called.stderr.strip():
        lines.append(f"on standard error:\n{called.stderr.strip()}")
    return "".join(f"{line}\n" for line in lines if line)


def _keep(called: Called, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for one in called.kept:
            (folder / one.name).write_bytes(one.artifact.content)
    except OSError as error:
        raise Misconfigured(f"{error.filename} cannot be written: {error.strerror}") from error
