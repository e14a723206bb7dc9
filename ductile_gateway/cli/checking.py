"""`ductile-gateway check`: the tools that there would be, and what is wrong. It starts nothing.

It ends with 78 where something is wrong, or a chosen tool or command is left out; with 69 while Ductile does not
answer.
"""

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from ductile_gateway.authoring.advice import advice
from ductile_gateway.calls.continuing import reads_form
from ductile_gateway.cli import exits
from ductile_gateway.cli.options import ConfigNearby, ToolsFolder
from ductile_gateway.ductile import discovery
from ductile_gateway.plugins.boxes import boundary_of, box_of
from ductile_gateway.plugins.process import plugin_environment
from ductile_gateway.plugins.trying import look_at_box
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.store import ahead
from ductile_gateway.tools.catalog import Offers
from ductile_gateway.tools.toolbox import Tools, find_tools
from groundwork.service.errors import TryAgain, Unreachable
from groundwork.service.exits import Exit
from schemas.catalog import ToolCommand
from schemas.status import Finding

commands = typer.Typer()

BRINGS = {
    "untrusted": ", brings what strangers wrote",
    "": ", counts as bringing what strangers wrote: nothing declares its `output`",
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
    if not is_usable or any(finding.mark == "wrong" for finding in findings):
        return Exit.UNREACHABLE if is_usable and _are_away(tools) else Exit.MISCONFIGURED
    return Exit.OK


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


def _are_away(tools: Tools) -> bool:
    return bool(tools.unheard) and all(isinstance(why, TryAgain) for why in tools.unheard.values())


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
        bool, typer.Option("--settings-only", help="Look at the settings, and ask nobody.")
    ] = False,
) -> None:
    """Exit code 78 where something is, or is left out."""
    if settings_only:
        settings = exits.settings_of(config)
        if coming := "" if settings.shared else ahead(settings.store):
            sys.stdout.write(f"{coming}\n")
        if settings.runner == "plugins":
            boundary_of(settings.plugins)
        return
    raise typer.Exit(check(exits.settings_for_tools(config, tools)))
