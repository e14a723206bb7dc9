"""The settings that a command goes by."""

import os
from collections.abc import Sequence
from pathlib import Path

from ductile_gateway.settings import GatewaySettings, load
from groundwork.service import json_log
from groundwork.service.errors import Misconfigured

NAME = "ductile-gateway"
DEFAULT_CONFIG = Path("agentic.yaml")
OF_DEV = Path(".agentic/agentic.yaml")
TOOLS = Path("tools")


def settings_file(config: Path | None) -> Path | None:
    return config or (DEFAULT_CONFIG if os.path.lexists(DEFAULT_CONFIG) else None)


def settings_of(config: Path | None) -> GatewaySettings:
    """For a command that serves nobody: its log has what is wrong, for people. Raises Misconfigured."""
    settings = load(settings_file(config))
    json_log.set_up("WARNING", "text", redact=settings.secrets)
    return settings


def settings_for_tools(config: Path | None, tools: Path | None) -> GatewaySettings:
    """The named settings, or else ./agentic.yaml, or else those of `agentic dev`; `tools` replaces their tools. Raises
    Misconfigured."""
    nearby = next(filter(os.path.lexists, (DEFAULT_CONFIG, OF_DEV)), None)
    settings = settings_of(config or nearby)
    if tools:
        return _with_folders(settings, tools).model_copy(update={"runner": "plugins", "tools": None})
    if settings.runner != "plugins":
        return settings
    folders = settings.plugins.folders
    if config is None and nearby in (OF_DEV, None):  # of a stack that may have ended long ago
        folders = (*_here(folders), *(folder for folder in folders if folder.is_dir()))
    elif not folders:
        folders = _here(())
    if not folders:
        raise Misconfigured(
            "gateway.plugins.folders names no folder: name those that hold the plugins, or give --tools FOLDER"
        )
    return _with_folders(settings, *folders)


def _here(folders: Sequence[Path]) -> tuple[Path, ...]:
    known = {folder.absolute() for folder in folders}
    return (TOOLS,) if TOOLS.is_dir() and TOOLS.absolute() not in known else ()


def _with_folders(settings: GatewaySettings, *folders: Path) -> GatewaySettings:
    return settings.model_copy(update={"plugins": settings.plugins.model_copy(update={"folders": folders})})
