"""Options that several commands have, and the settings that a command goes by."""

import os
from pathlib import Path
from typing import Annotated

import typer

from ductile_gateway.settings import DEFAULT_FILE, GatewaySettings, load, settings_file
from groundwork.service import json_log
from groundwork.service.errors import Misconfigured

Config = Annotated[
    Path | None, typer.Option(help="The configuration file. Without it: ./agentic.yaml, if there is one.")
]
ConfigNearby = Annotated[
    Path | None,
    typer.Option(help="The configuration file. Without it: ./agentic.yaml, or else ./.agentic/agentic.yaml."),
]
ToolsFolder = Annotated[
    Path | None,
    typer.Option("--tools", help="A folder of tools, or one tool, in place of those configured.", metavar="FOLDER"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]

NAME = "ductile-gateway"
OF_DEV = Path(".agentic/agentic.yaml")
TOOLS = Path("tools")


def settings_of(config: Path | None) -> GatewaySettings:
    """For a command that serves no callers: its log has what is wrong, for people. Raises Misconfigured."""
    settings = load(settings_file(config))
    json_log.set_up("WARNING", "text", redact=settings.secrets)
    return settings


def settings_for_tools(config: Path | None, tools: Path | None) -> GatewaySettings:
    """The named settings, or else ./agentic.yaml, or else those of `agentic dev`, beside whose folders ./tools counts;
    `tools` replaces their tools. Raises Misconfigured."""
    nearby = next(filter(os.path.lexists, (DEFAULT_FILE, OF_DEV)), None)
    settings = settings_of(config or nearby)
    if tools:
        return _with_folders(settings, tools).model_copy(update={"runner": "plugins", "tools": None})
    if settings.runner != "plugins":
        return settings
    folders, is_dev = settings.plugins.folders, config is None and nearby in (OF_DEV, None)
    here = TOOLS.is_dir() and TOOLS.absolute() not in {folder.absolute() for folder in folders}
    if is_dev:  # of a stack that may have ended long ago
        folders = tuple(folder for folder in folders if folder.is_dir())
    if here and (is_dev or not folders):
        folders = (TOOLS, *folders)
    if not folders:
        raise Misconfigured(
            "gateway.plugins.folders names no folder: name those that hold the plugins, or give --tools FOLDER"
        )
    return _with_folders(settings, *folders)


def _with_folders(settings: GatewaySettings, *folders: Path) -> GatewaySettings:
    return settings.model_copy(update={"plugins": settings.plugins.model_copy(update={"folders": folders})})
