"""Plugins that take part in a scenario as they are: each call is a process of their own."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, JsonValue, model_validator

from agent_service.workbench.evaluation.tools import Strict
from groundwork.service.installed import shipped
from schemas.catalog import ToolCommand, ToolOffer
from schemas.events import ToolError, ToolOutput, ToolRequest
from schemas.fields import JsonObject, Text, ToolName

PLUGINS = shipped("deploy", "ductile", "plugins")
HOUSEKEEPING = frozenset({"health", "init"})
TIMEOUT_S = 60.0
FILES = "$files"


class Plugin(Strict):
    """A plugin of those that come along, or of a folder, offered with all of its commands."""

    plugin: ToolName
    folder: Path | None = None
    """Which holds it, from where the command is started; without it, it is one of those that come along."""
    config: JsonObject = Field(default_factory=dict)
    files: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")], Text] = Field(default_factory=dict)
    """Written to a folder, which `config` names as `$files`."""
    needs: Text | None = None
    """A Python module without which it cannot answer: the scenario is not played where there is none."""

    @model_validator(mode="after")
    def _can_be_run(self) -> "Plugin":
        if self.folder:
            try:
                entrypoint = self.place / self.manifest()["entrypoint"]
            except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
                entrypoint = None
            if entrypoint is None or not os.access(entrypoint, os.X_OK):
                why = f"`ductile-gateway check --tools {self.folder}` says why"
                raise ValueError(f"{self.plugin} in {self.folder} is no plugin that can be run: {why}")
        return self

    @property
    def place(self) -> Path:
        return (self.folder.absolute() if self.folder else PLUGINS) / self.plugin

    def manifest(self) -> dict[str, Any]:
        manifest: dict[str, Any] = yaml.safe_load((self.place / "manifest.yaml").read_text("utf-8"))
        return manifest

    @property
    def missing(self) -> str:
        if not (self.place / "manifest.yaml").is_file():
            return f"there is no plugin {self.plugin} in {self.place.parent}"
        if self.needs and find_spec(self.needs) is None:
            return f"its plugin {self.plugin} needs the Python module {self.needs}"
        return ""


@dataclass(frozen=True, slots=True)
class PluginFolder:
    plugin: Plugin
    scratch: Path

    @property
    def offer(self) -> ToolOffer:
        manifest = self.plugin.manifest()
        return ToolOffer(
            name=manifest["name"],
            route=manifest["name"],
            description=manifest.get("description", ""),
            commands=tuple(_commands(manifest)),
            timeout_s=TIMEOUT_S,
            output=manifest.get("output"),
        )

    async def answer(self, request: ToolRequest) -> ToolOutput | ToolError:
        self.scratch.mkdir(parents=True, exist_ok=True)
        for name, content in self.plugin.files.items():
            (self.scratch / name).write_text(content, encoding="utf-8")
        process = await asyncio.create_subprocess_exec(
            str(self.plugin.place / self.plugin.manifest()["entrypoint"]),
            cwd=self.scratch,
            env={"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}", "HOME": str(self.scratch)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        answered, _ = await process.communicate(self._asked(request))
        return _read(answered)

    def _asked(self, request: ToolRequest) -> bytes:
        config = {name: str(self.scratch) if value == FILES else value for name, value in self.plugin.config.items()}
        asked = {"protocol": 2, "command": request.tool_command, "config": config, "state": {}}
        if request.untrusted:
            asked["untrusted"] = True
        if request.tool_command == "handle":
            asked |= {"event": {"type": "api.trigger", "payload": request.tool_payload}}
        return json.dumps({"payload": request.tool_payload, **asked}).encode()


def _commands(manifest: dict[str, Any]) -> Iterator[ToolCommand]:
    for command in manifest["commands"]:
        if command["name"] not in HOUSEKEEPING:
            yield ToolCommand(
                name=command["name"],
                description=command.get("description", ""),
                tier=command["type"],
                idempotent=command.get("idempotent", False),
                effect=command.get("effect"),
                input_schema=command.get("input_schema", {}),
            )


def _read(answered: bytes) -> ToolOutput | ToolError:
    try:
        told: dict[str, JsonValue] = json.loads(answered)
    except ValueError:
        return ToolError(error_class="bad_output", message="the plugin wrote no JSON")
    if told.get("status") == "error":
        error_class = str(told.get("error_class") or "tool_error")
        return ToolError(
            error_class=error_class, message=str(told.get("error")), retryable=told.get("retry") is not False
        )
    output = {"summary": told.get("result"), "output": told.get("output"), "continuation": told.get("continuation")}
    return ToolOutput.model_validate({name: value for name, value in output.items() if value is not None})
