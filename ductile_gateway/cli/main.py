"""Commands of `ductile-gateway`, and their common options."""

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import typer

from ductile_gateway.settings import GatewaySettings, load
from groundwork.service import commands, json_log
from groundwork.service.commands import LazyGroup, flag, option, table_of
from groundwork.service.config_file import DEV_FILE, FILE, nearby

CONFIG = option("The configuration file. Without it: ./agentic.yaml, if there is one.")
CONFIG_NEARBY = option("The configuration file. Without it: ./agentic.yaml, or else ./.agentic/agentic.yaml.")
TOOLS_FOLDER = option("A folder of tools, or one tool, in place of those configured.", "--tools", metavar="FOLDER")
AS_JSON = flag("Print JSON for programs.", "--json")

NAME = "ductile-gateway"
TOOLS = Path("tools")
EXAMPLE = '{"text": "one two three"}'
"""Arguments of a tool that `new` makes."""


def settings_of(config: Path | None) -> GatewaySettings:
    """Settings of a command, which logs warnings as text. Raises Misconfigured."""
    settings = load(nearby(config))
    json_log.set_up("WARNING", "text", redact=settings.secrets())
    return settings


def settings_for_tools(config: Path | None, tools: Path | None) -> GatewaySettings:
    """The named settings, else ./agentic.yaml, else those of `agentic dev`, with ./tools added. `tools` replaces their
    tools. Raises Misconfigured."""
    file = nearby(config, FILE, DEV_FILE)
    settings = settings_of(file)
    if tools:
        return _with_folders(settings, tools).model_copy(update={"runner": "plugins", "tools": None})
    if settings.runner != "plugins":
        return settings
    folders, is_dev = settings.plugins.folders, config is None and file in (DEV_FILE, None)
    here = TOOLS.is_dir() and TOOLS.absolute() not in {folder.absolute() for folder in folders}
    if is_dev:  # the stack may have ended long ago
        folders = tuple(folder for folder in folders if folder.is_dir())
    if here and (is_dev or not folders):
        folders = (TOOLS, *folders)
    return _with_folders(settings, *folders)


def _with_folders(settings: GatewaySettings, *folders: Path) -> GatewaySettings:
    return settings.model_copy(update={"plugins": settings.plugins.model_copy(update={"folders": folders})})


class Gateway(LazyGroup):
    table = table_of(
        "ductile_gateway.cli",
        """
Commands
check    tools       List the tools on offer, and what is wrong with them.
new      tools       Create a tool: a manifest, a program, and a script that calls it.
call     calling     Call a tool as the gateway would for an agent, and show its answer.
backup   archive     Back up the gateway's ledger into a file, while it runs.
restore  archive     Restore the gateway's ledger from a backup. Nothing is overwritten.
ductile  installing  Add agents to a Ductile, and remove them.
trust    trusting    Show the keys that the agent's messages are verified with.
""",
    )


app = commands.program(
    NAME,
    Gateway,
    """Carries the tool requests of agents to their tools: plugins that it runs itself, or those of a Ductile.

    Pages named docs/… are at https://github.com/agentic-loop/agentic-loop/tree/main/docs
    """,
)


@app.command(rich_help_panel="Commands")
def serve(
    config: Path | None = CONFIG,
    take_over: bool = flag("End the gateway that owns the bus, and take its place.", "--take-over"),
) -> None:
    """Run the gateway until SIGTERM or Ctrl-C. It logs to standard error."""
    from ductile_gateway.app import run  # 45 ms that no other command needs

    raise typer.Exit(run(config, take_over=take_over))


def main(arguments: Sequence[str] | None = None, *, name: str = NAME) -> NoReturn:
    """Runs one command line, typed as `name`. Raises SystemExit."""
    commands.run(app, name, arguments)
