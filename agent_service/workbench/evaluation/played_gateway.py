"""A gateway that plays the tools of a scenario: every request is answered once, as the scenario's file says."""

import hashlib
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pydantic import JsonValue

from agent_service.models.prompts.notes import canonical
from agent_service.workbench.evaluation.played import PlayedBus, PlayedClock
from agent_service.workbench.evaluation.scenario import Scenario
from agent_service.workbench.evaluation.tools import Brought, Document, PluginFolder, ToolAnswer
from schemas import keys, subjects
from schemas.catalog import UNNAMED, Catalog
from schemas.clipping import clipped
from schemas.events import Envelope, ToolError, ToolOutput, ToolRequest, ToolResult

PLUGIN_TAKES_S = 1.0
EXCERPT = 8192


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

    def filled(self, request: ToolRequest) -> dict[str, JsonValue]:
        """The payload of a request, with the text of each artifact in the place of its path."""
        filled = dict(request.tool_payload)
        for name, path in filled.items():
            if isinstance(path, str) and (content := self._contents.get((request.run_id, path))) is not None:
                filled[name] = {"path": path, "text": content.decode()}
        return filled

    def _path(self, run_id: str, name: str, step: int) -> str:
        taken = (run_id, f"artifacts/{name}") in self._contents
        file = PurePosixPath(name)
        return f"artifacts/{file.stem}-{step:02d}{file.suffix}" if taken else f"artifacts/{name}"


def _beginning(text: str, path: str) -> str:
    goes_on = f"line {text.count(chr(10), 0, EXCERPT) + 1}"
    return clipped(text, EXCERPT, f"; the whole is the artifact {path}, which goes on at {goes_on}")


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
        offers = [*(tool.offer for tool in scenario.tools), *(plugin.offer for plugin in self._plugins.values())]
        offers += scenario.settings.own_tools()
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
            told = await plugin.answer(request, self.artifacts.filled(request))
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
