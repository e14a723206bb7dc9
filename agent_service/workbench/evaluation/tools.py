"""The tools of a scenario as its file says them: played ones, with what is answered to which calls, and plugins.

A plugin takes part as it is: each call is a process of its own.
"""

import asyncio
import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from agent_service.models.scripted_model import Pattern
from groundwork.service.installed import shipped
from schemas.catalog import Output, ToolCommand, ToolOffer
from schemas.events import ToolError, ToolOutput, ToolRequest
from schemas.fields import Json, JsonObject, Text, ToolName
from schemas.values import dataclass


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Lines(Strict):
    """Many lines that differ in a number: `line` with `{n}` for each number of `first` to `last`."""

    line: Text
    first: int = 1
    last: Annotated[int, Field(le=100_000)]

    def __str__(self) -> str:
        return "\n".join(self.line.replace("{n}", str(number)) for number in range(self.first, self.last + 1))


class Document(Strict):
    """A file that a tool leaves behind: an artifact of the run."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    content: Text | tuple[Text | Lines, ...]
    content_type: str = "text/plain"

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "\n".join(map(str, self.content))


class Brought(Strict):
    """A result that says `ok`; whether it is one is another question."""

    summary: Text = ""
    output: JsonObject = {}
    artifact: Document | None = None
    excerpt: Text | None = None
    """Of the artifact; without one its beginning."""


class Failure(Strict):
    error_class: Annotated[Text, Field(alias="class", max_length=64)]
    message: Text
    retryable: bool = False


class ToolAnswer(Strict):
    """One of `result`, `error`, `continuation`, `silence`. The first that fits; `nth`: of the calls that fit."""

    command: str | None = None
    when: Pattern | None = None
    """Is searched for in the arguments as canonical JSON: sorted keys, `", "` and `": "` between them."""
    nth: Annotated[int, Field(ge=1)] | None = None
    takes_s: Annotated[float, Field(ge=0)] = 2.0
    result: Brought | None = None
    error: Failure | None = None
    continuation: JsonObject | Text | None = None
    """It needs more first: as JSON, or as a text in the markdown form. Sent as it is, be it right or wrong."""
    silence: bool = False
    """It never answers."""

    @model_validator(mode="after")
    def _one_kind(self) -> "ToolAnswer":
        given = (self.result, self.error, self.continuation)
        if sum(one is not None for one in given) + self.silence != 1:
            raise ValueError("needs exactly one of result, error, continuation, silence")
        return self


class Command(ToolCommand):
    model_config = ConfigDict(extra="forbid", defer_build=False)

    name: ToolName = "handle"
    input_schema: dict[str, Json]


class Tool(Strict):
    name: ToolName
    description: Text
    commands: Annotated[tuple[Command, ...], Field(min_length=1)]
    timeout_s: Annotated[float, Field(gt=0, le=86400)] = 60.0
    output: Output | None = None
    answers: tuple[ToolAnswer, ...]

    @property
    def offer(self) -> ToolOffer:
        return ToolOffer(route=self.name, **self.model_dump(exclude={"answers"}))


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
        shown = (command for command in manifest["commands"] if command["name"] not in HOUSEKEEPING)
        commands = [command | {"tier": command["type"]} for command in shown]
        told = {"route": manifest["name"], "commands": commands, "timeout_s": TIMEOUT_S}
        return ToolOffer.model_validate(manifest | told)

    async def answer(self, request: ToolRequest, payload: dict[str, JsonValue]) -> ToolOutput | ToolError:
        """`payload`: that of the request, with the texts of artifacts in the place of their paths."""
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
        answered, _ = await process.communicate(self._asked(request, payload))
        return _read(answered)

    def _asked(self, request: ToolRequest, payload: dict[str, JsonValue]) -> bytes:
        config = {name: str(self.scratch) if value == FILES else value for name, value in self.plugin.config.items()}
        asked = {"protocol": 2, "command": request.tool_command, "config": config, "state": {}}
        if request.untrusted:
            asked["untrusted"] = True
        if request.tool_command == "handle":
            asked |= {"event": {"type": "api.trigger", "payload": payload}}
        return json.dumps({"payload": payload, **asked}).encode()


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
