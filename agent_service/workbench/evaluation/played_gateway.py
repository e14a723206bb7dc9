"""A gateway that plays the tools of a scenario: every request is answered once, as the scenario's file says."""

import hashlib
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pydantic import JsonValue

from agent_service.models.prompts.notes import canonical
from agent_service.workbench.evaluation.played import PlayedBus, PlayedClock
from agent_service.workbench.evaluation.plugins import PluginFolder
from agent_service.workbench.evaluation.scenario import ARTIFACT_TOOL, Scenario
from agent_service.workbench.evaluation.tools import Brought, Document, ToolAnswer
from schemas import keys, subjects
from schemas.catalog import UNNAMED, Catalog, ToolCommand, ToolOffer
from schemas.clipping import clipped
from schemas.events import Envelope, ToolError, ToolOutput, ToolRequest, ToolResult

PLUGIN_TAKES_S = 1.0
MOST_SHOWN = 10_500
"""Characters of one answer, as of the shipped plugin `artifact`."""
EXCERPT = 8192

_PATH: dict[str, JsonValue] = {"type": "string", "description": "As an earlier result named it: artifacts/<name>."}
_FROM: dict[str, JsonValue] = {"type": "integer", "minimum": 1, "description": "The first line, counted from 1."}
_PATTERN: dict[str, JsonValue] = {"type": "string", "minLength": 1, "maxLength": 200}
_ABOUT = "Reads on in a long artifact of this run, or finds a text in it. For results that were cut."
OFFER = ToolOffer(
    name=ARTIFACT_TOOL,
    route=ARTIFACT_TOOL,
    description=_ABOUT,
    output="trusted",
    commands=(
        ToolCommand(
            name="read",
            tier="read",
            description="Show the lines from from_line on, as many as fit, and say how to read on.",
            input_schema={
                "type": "object",
                "properties": {"artifact": _PATH, "from_line": _FROM},
                "required": ["artifact"],
                "additionalProperties": False,
            },
        ),
        ToolCommand(
            name="search",
            tier="read",
            description=(
                "Show the lines that contain a plain text, or any of several, upper and lower case alike, with their "
                "numbers."
            ),
            input_schema={
                "type": "object",
                "properties": {
                    "artifact": _PATH,
                    "pattern": _PATTERN,
                    "patterns": {"type": "array", "minItems": 1, "maxItems": 8, "items": _PATTERN},
                },
                "required": ["artifact"],
                "anyOf": [{"required": ["pattern"]}, {"required": ["patterns"]}],
                "additionalProperties": False,
            },
        ),
    ),
)


class KeptArtifacts:
    def __init__(self) -> None:
        self._contents: dict[tuple[str, str], bytes] = {}

    async def get(self, run_id: str, path: str) -> bytes | None:
        return self._contents.get((run_id, path))

    async def put(self, run_id: str, path: str, content: bytes) -> None:
        self._contents[run_id, path] = content

    def paths(self, run_id: str) -> frozenset[str]:
        return frozenset(path for of, path in self._contents if of == run_id)

    def keep(self, run_id: str, document: Document, step: int, excerpt: str | None) -> dict[str, Any]:
        path, content = self._path(run_id, document.name, step), document.text.encode()
        self._contents[run_id, path] = content
        named = {"path": path, "content_type": document.content_type}
        return {
            "artifact_path": path,
            "content_type": document.content_type,
            "excerpt": _beginning(document.text, path) if excerpt is None else excerpt,
            "artifacts": [{**named, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}],
        }

    def answer(self, run_id: str, command: str, arguments: dict[str, JsonValue]) -> ToolOutput | ToolError:
        content = self._contents.get((run_id, str(arguments.get("artifact"))))
        if content is None:
            kept = ", ".join(sorted(self.paths(run_id))) or "none"
            return ToolError(error_class="not_found", message=f"no such artifact; this run has: {kept}")
        lines = content.decode().splitlines()
        if command == "search":
            return _told(_found(lines, _patterns(arguments)))
        first = arguments.get("from_line", 1)
        return _told(_part(lines, first if isinstance(first, int) else 1))

    def _path(self, run_id: str, name: str, step: int) -> str:
        taken = (run_id, f"artifacts/{name}") in self._contents
        file = PurePosixPath(name)
        return f"artifacts/{file.stem}-{step:02d}{file.suffix}" if taken else f"artifacts/{name}"


def _beginning(text: str, path: str) -> str:
    goes_on = f"line {text.count(chr(10), 0, EXCERPT) + 1}"
    return clipped(text, EXCERPT, f"; the whole is the artifact {path}, which goes on at {goes_on}")


def _part(lines: list[str], first: int) -> str:
    shown: list[str] = []
    size = 0
    for line in lines[first - 1 :]:
        size += len(line) + 1
        if shown and size > MOST_SHOWN:
            break
        shown.append(line[:MOST_SHOWN])
    last = first + len(shown) - 1
    left = len(lines) - last
    rest = f"[cut: {left} more lines; read on with from_line {last + 1}]" if left > 0 else "[this is the end]"
    return "\n".join((f"lines {first} to {last} of {len(lines)}:", *shown, rest))


def _patterns(arguments: dict[str, JsonValue]) -> list[str]:
    several = arguments.get("patterns")
    return [str(one) for one in (*(several if isinstance(several, list) else ()), arguments.get("pattern")) if one]


def _found(lines: list[str], patterns: list[str]) -> str:
    wanted = [pattern.casefold() for pattern in patterns]
    folded = [line.casefold() for line in lines]
    hits = [f"{n}: {lines[n - 1]}" for n, line in enumerate(folded, start=1) if any(one in line for one in wanted)]
    each = ", ".join(
        f"“{pattern}”: {sum(one in line for line in folded)}" for pattern, one in zip(patterns, wanted, strict=True)
    )
    text = "\n".join(hits)
    more = "" if len(text) <= MOST_SHOWN else "\n[cut: there are more matches; search for a longer text]"
    return f"{len(hits)} of {len(lines)} lines match ({each}):\n{text[:MOST_SHOWN]}{more}"


def _told(text: str) -> ToolOutput:
    return ToolOutput.model_validate({"summary": text})


Status = Literal["ok", "error", "continuation"]
Outcome = tuple[Status, ToolOutput | ToolError]


class PlayedGateway:
    def __init__(self, scenario: Scenario, bus: PlayedBus, clock: PlayedClock, folder: Path) -> None:
        self.artifacts = KeptArtifacts()
        self._plugins = {one.plugin: PluginFolder(one, folder / one.plugin) for one in scenario.plugins}
        self._scenario = scenario
        self._bus = bus
        self._clock = clock
        self._calls: Counter[tuple[str, int]] = Counter()
        offers = [tool.offer for tool in scenario.tools] + [OFFER] * scenario.artifact_tool
        offers += [*(plugin.offer for plugin in self._plugins.values()), *scenario.settings.own_tools()]
        self.offers = tuple(sorted(offers, key=lambda offer: offer.name))

    async def catalog(self) -> Catalog:
        return Catalog(revision=self._scenario.name, tools=self.offers)

    def present(self) -> frozenset[str]:
        return frozenset((UNNAMED,))

    async def take(self, body: bytes) -> ToolRequest:
        request = Envelope[ToolRequest].model_validate_json(body).payload
        if request.executor == subjects.SERVICE_AGENT:
            return request
        plugin = self._plugins.get(request.tool)
        if plugin:
            told = await plugin.answer(request)
            self._send(request, (_status(told), told), PLUGIN_TAKES_S)
            return request
        answer = self._answer(request)
        if answer is None or not answer.silence:
            takes_s = answer.takes_s if answer else 0.0
            self._send(request, self._outcome(request, answer), takes_s)
        return request

    def _answer(self, request: ToolRequest) -> ToolAnswer | None:
        tool, arguments = self._scenario.tool(request.tool), canonical(request.tool_payload)
        fitting = [
            (place, answer)
            for place, answer in enumerate(tool.answers if tool else ())
            if answer.command in (None, request.tool_command) and (answer.when is None or answer.when.search(arguments))
        ]
        self._calls.update((request.tool, place) for place, _ in fitting)
        turns = (answer for place, answer in fitting if answer.nth in (None, self._calls[request.tool, place]))
        return next(turns, None)

    def _outcome(self, request: ToolRequest, answer: ToolAnswer | None) -> Outcome:
        if request.tool == ARTIFACT_TOOL and self._scenario.artifact_tool:
            told = self.artifacts.answer(request.run_id, request.tool_command, request.tool_payload)
            return _status(told), told
        if answer and answer.error:
            return "error", ToolError(**answer.error.model_dump())
        if answer and answer.continuation is not None:
            return "continuation", _needing(answer.continuation)
        if answer and answer.result:
            return "ok", self._brought(answer.result, request)
        message = f"nothing is known for {canonical(request.tool_payload)}"
        return "error", ToolError(error_class="not_found", message=message)

    def _brought(self, result: Brought, request: ToolRequest) -> ToolOutput:
        told: dict[str, object] = {"summary": result.summary} if result.summary else {}
        told |= {"output": result.output} if result.output else {}
        if result.artifact:
            told |= self.artifacts.keep(request.run_id, result.artifact, request.step, result.excerpt)
        return ToolOutput.model_validate(told)

    def _send(self, request: ToolRequest, outcome: Outcome, takes_s: float) -> None:
        status, told = outcome
        result = ToolResult(
            run_id=request.run_id,
            step=request.step,
            tool=request.tool,
            attempt=request.attempt,
            task=request.task,
            round=request.round,
            status=status,
            result=told if isinstance(told, ToolOutput) else None,
            error=told if isinstance(told, ToolError) else None,
            completed_at=self._clock.later(takes_s),
        )
        key = keys.result(request.run_id, request.step, request.attempt, request.task, request.round)
        message = Envelope[ToolResult](type=subjects.TOOL_RESULT, payload=result, dedupe_key=key)
        self._bus.send(subjects.TOOL_RESULT, message.body(), after_s=takes_s)


def _status(told: ToolOutput | ToolError) -> Status:
    if isinstance(told, ToolError):
        return "error"
    return "continuation" if "continuation" in (told.model_extra or {}) else "ok"


def _needing(continuation: dict[str, JsonValue] | str) -> ToolOutput:
    field = "summary" if isinstance(continuation, str) else "continuation"
    return ToolOutput.model_validate({field: continuation})
