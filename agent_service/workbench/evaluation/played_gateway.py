"""A gateway that plays the tools of a scenario: every request is answered once, as the scenario's file says.

It refuses nothing: whether the agent kept to its rules is read from the requests afterwards.
"""

import json
from collections import Counter

from pydantic import JsonValue

from agent_service.workbench.evaluation.kept_artifacts import OFFER, KeptArtifacts
from agent_service.workbench.evaluation.played_bus import PlayedBus
from agent_service.workbench.evaluation.played_clock import PlayedClock
from agent_service.workbench.evaluation.scenario import ARTIFACT_TOOL, Brought, Scenario, ToolAnswer
from schemas import keys, subjects
from schemas.catalog import UNNAMED, Catalog
from schemas.events import Envelope, ToolError, ToolOutput, ToolRequest, ToolResult

Outcome = ToolOutput | ToolError


class PlayedGateway:
    """Answers tool requests, and serves the catalog (fills the port Skills)."""

    def __init__(self, scenario: Scenario, bus: PlayedBus, clock: PlayedClock) -> None:
        self.artifacts = KeptArtifacts()
        self._scenario = scenario
        self._bus = bus
        self._clock = clock
        self._calls: Counter[tuple[str, int]] = Counter()
        offers = [tool.offer for tool in scenario.tools] + [OFFER] * scenario.artifact_tool
        self.offers = tuple(sorted(offers, key=lambda offer: offer.name))

    async def catalog(self) -> Catalog:
        return Catalog(revision=self._scenario.name, tools=self.offers)

    def present(self) -> frozenset[str]:
        return frozenset((UNNAMED,))

    def take(self, body: bytes) -> ToolRequest:
        """Carry out a request, and send its result when it is due."""
        request = Envelope[ToolRequest].model_validate_json(body).payload
        answer = self._answer(request)
        if answer is None or not answer.silence:
            takes_s = answer.takes_s if answer else 0.0
            self._send(request, self._outcome(request, answer), takes_s)
        return request

    def _answer(self, request: ToolRequest) -> ToolAnswer | None:
        """The first answer that fits and whose turn it is. Every answer counts all calls that fit it."""
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
            return self.artifacts.answer(request.tool_command, request.tool_payload)
        if answer and answer.error:
            return ToolError(**answer.error.model_dump())
        if answer and answer.result:
            return self._brought(answer.result, request.step)
        return ToolError(error_class="not_found", message=f"nothing is known for {canonical(request.tool_payload)}")

    def _brought(self, result: Brought, step: int) -> ToolOutput:
        told: dict[str, object] = {"summary": result.summary} if result.summary else {}
        told |= {"output": result.output} if result.output else {}
        told |= self.artifacts.keep(result.artifact, step, result.excerpt) if result.artifact else {}
        return ToolOutput.model_validate(told)

    def _send(self, request: ToolRequest, outcome: Outcome, takes_s: float) -> None:
        failed = isinstance(outcome, ToolError)
        result = ToolResult(
            run_id=request.run_id,
            step=request.step,
            tool=request.tool,
            attempt=request.attempt,
            status="error" if failed else "ok",
            result=None if isinstance(outcome, ToolError) else outcome,
            error=outcome if isinstance(outcome, ToolError) else None,
            completed_at=self._clock.later(takes_s),
        )
        key = keys.result(request.run_id, request.step, request.attempt)
        message = Envelope[ToolResult](type=subjects.TOOL_RESULT, payload=result, dedupe_key=key)
        self._bus.send(subjects.TOOL_RESULT, message.body(), after_s=takes_s)


def canonical(arguments: dict[str, JsonValue]) -> str:
    """As patterns in scenarios see arguments."""
    return json.dumps(arguments, ensure_ascii=False, sort_keys=True)
