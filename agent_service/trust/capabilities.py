"""Capabilities: a MAC over which request it is (`keys.proven`), which whoever carries the request out brings back."""

from agent_service.core.events import Proof
from agent_service.core.state import RunState
from agent_service.core.waiting import Pending
from groundwork.service.keys import KeyRing
from schemas import keys
from schemas.events import ToolRequest, ToolResult

PURPOSE = "capability"


class Capabilities:
    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring

    def of_request(self, proves: tuple[str, ...]) -> str:
        return self._ring.mac(PURPOSE, *proves)

    def proves(self, request: ToolRequest) -> bool:
        named = request.run_id, request.step, request.attempt, request.tool, request.task, request.round
        return bool(request.capability) and self._proves(request.capability or "", keys.proven(*named))

    def of_result(self, result: ToolResult, given: str | None, state: RunState | None) -> tuple[ToolResult, Proof]:
        """What the capability `given` with `result` proves, and the result completed by it and without it."""
        bare = result.model_copy(update={"capability": None}) if result.capability else result
        if not given:
            return bare, "none"
        for pending in state.pendings if state else ():
            if self._proves(given, _asked(bare.run_id, pending)):
                named = _completed(bare, pending)
                return (named, "named") if named else (bare, "another")
        most = state.brief.limits.max_attempts if state else 0
        for attempt in [bare.attempt] if bare.attempt else range(1, most + 1):
            if self._proves(given, _named(bare, attempt)):
                return bare.model_copy(update={"attempt": attempt}), "named"
        return bare, "none"

    def _proves(self, given: str, request: tuple[str, ...]) -> bool:
        return self._ring.checks(given, PURPOSE, *request)


def _named(result: ToolResult, attempt: int) -> tuple[str, ...]:
    return keys.proven(result.run_id, result.step, attempt, result.tool, result.task, result.round)


def _asked(run_id: str, pending: Pending) -> tuple[str, ...]:
    task, asked_in = pending.task or None, pending.round or None
    return keys.proven(run_id, pending.step, pending.attempt, pending.action.tool, task, asked_in)


def _completed(result: ToolResult, pending: Pending) -> ToolResult | None:
    said = {"attempt": result.attempt, "task": result.task, "round": result.round}
    its = {"attempt": pending.attempt, "task": pending.task or None, "round": pending.round or None}
    if (result.step, result.tool) != (pending.step, pending.action.tool):
        return None
    if any(name is not None and name != its[which] for which, name in said.items()):
        return None
    return result.model_copy(update=its)
