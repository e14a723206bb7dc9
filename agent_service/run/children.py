"""Executor of the tool `agent`, inside the agent, and the wake of a child from the state of its parent.

agentic.tool_request ─▶ check capability, still wanted? ─▶ accept the child ─▶ acknowledge
child ended ─▶ agentic.tool_result                         request withdrawn ─▶ cancel the child

The child's id follows from the call, so a repeated request is one child. A child's end owes the result, and the end of
its parent or step the cancel: both are repeated until that entry is dispatched. A child is one level deeper, with no
other tools, no more than its grant and no later deadline. It inherits the parent's taint, in-doubt writes and refusals.
"""

import hashlib
import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from pydantic import JsonValue, ValidationError

from agent_service.core import acting, egress, limits
from agent_service.core.brief import Brief, Grant, Limits, Parent
from agent_service.core.continuing import action_as_sent
from agent_service.core.events import CancelRequested, WakeAccepted
from agent_service.core.planning import refusals_in_force
from agent_service.core.state import RunState
from agent_service.core.waiting import Ended, Pending, Status
from agent_service.errors import ArtifactReplaced, Damaged, WakeConflict
from agent_service.run.inbound import InboundMessage, InvalidMessage, UnknownRun
from agent_service.run.messages import OutgoingMessage
from agent_service.run.ports import RunArtifacts
from agent_service.run.turn import Turns
from agent_service.trust.identity import trace_url_of_child
from schemas import catalog, keys, subjects
from schemas.bounded import clipped
from schemas.catalog import AgentCall, ChildUsage
from schemas.events import LONGEST_MESSAGE, Envelope, ToolError, ToolOutput, ToolRequest, ToolResult
from schemas.fields import validation_flaws
from schemas.values import dataclass, replace

DEPTH = "agentic_depth"
"""Field of a start's context that holds its recursion depth."""
MAX_CONTEXT, LEAST_EVIDENCE = 8000, 50
"""Characters of a context with what tasks brought, and the fewest worth keeping of one task's result."""
WAKE_PREFIX = "child:"
NOTHING = Grant(steps=0, tokens=0, cost_usd=0.0)
LONGEST_STEM, LONGEST_SUFFIX = 48, 10
DIGEST_DIGITS = 16
_ENDED = {Status.ESCALATED: "could not go on", Status.FAILED: "failed", Status.CANCELLED: "was cancelled"}

log = logging.getLogger(__name__)


@dataclass(slots=True)
class ChildRuns:
    turns: Turns
    artifacts: RunArtifacts

    def __post_init__(self) -> None:
        self.turns.settle_children = self.settle

    async def receive(self, arrival: InboundMessage) -> None:
        """Stores the requested child before it returns, unless the request was withdrawn.

        Raises InvalidMessage (dead letter; its kind UnknownRun may pass by itself), Damaged and TryAgain.
        """
        request = self._read(arrival)
        parent = await self.turns.current(request.run_id)
        if parent is None:
            raise UnknownRun(request.run_id)
        name = (request.step, request.task or "", request.round or 0)
        for pending in (*limits.awaited_children(parent), *limits.withdrawn_children(parent)):
            if pending.name == name:
                await self._settle_child(parent, pending)

    async def settle(self, state: RunState, *, whole: bool = False) -> None:
        """Performs what the entry that led to `state` owes: the result of a child, and the cancel of withdrawn
        children. `whole`: all that the state owes, whatever bus and store have lost. A request that was withdrawn, and
        is wanted again after a reopening, may be acknowledged already. Raises TryAgain.
        """
        if state.final:
            await self._answer(state)
        if state.brief.may_have_children:
            awaited = limits.awaited_children(state) if state.reopened or whole else ()
            for pending in (*limits.withdrawn_children(state), *awaited):
                await self._settle_child(state, pending)

    async def _settle_child(self, parent: RunState, pending: Pending) -> None:
        """Wakes the child, publishes its result, or cancels it if it is no longer wanted."""
        run_id = limits.child_run_id(parent.run_id, pending)
        try:
            child = await self.turns.current(run_id)
        except Damaged as error:
            log.warning("a child is left alone", extra={"run_id": parent.run_id, "why": str(error)})
            why = f"what became of the run {run_id}, and whether it wrote anything, cannot be read any more: {error}"
            await self._publish(_unmade(parent, pending, "child_lost", why))  # its whole grant counts as spent
            return
        if child is None and pending in limits.awaited_children(parent):
            await self._wake(parent, pending)
            child = await self.turns.current(run_id)
        now = await self.turns.current(parent.run_id) or parent  # the parent may have ended meanwhile, or asked again
        if child is None:
            return
        if any(one.name == pending.name for one in limits.awaited_children(now)):
            await self._answer(child)
        elif not child.final:
            await self._cancel(now, pending, run_id)

    async def _wake(self, parent: RunState, pending: Pending) -> None:
        self.turns.kill_switch.check()
        try:
            event = wake(parent, pending, at=self.turns.clock.now())
        except BadCall as error:
            await self._publish(_unmade(parent, pending, "invalid_arguments", str(error), spent=ChildUsage()))
            return
        anew = self.turns.clock.new_run_id(event.at)  # a digest that no other acceptance has
        with suppress(WakeConflict):  # accepted meanwhile
            _, accepted = await self.turns.accept(event, anew)
            await self.turns.follow(accepted)

    async def _cancel(self, parent: RunState, pending: Pending, run_id: str) -> None:
        what = f"has ended ({parent.status})" if parent.final else f"gave up its step {pending.step}"
        reason = f"the run {parent.run_id} {what}, and waits for it no more"
        event = CancelRequested(at=self.turns.clock.now(), reason=reason, by=f"run {parent.run_id}")
        await self.turns.take(run_id, event)

    async def _answer(self, child: RunState) -> None:
        result = result_of(child)
        if result is None:  # it has not ended, or is no child
            return
        copied = [await self._copy_artifact(result.run_id, child.run_id, path) for path in child.artifacts]
        await self._publish(result_of(child, [one for one in copied if one]) or result)

    async def _publish(self, result: ToolResult) -> None:
        """The id is the same however often it is published. The publisher adds the capability of the request."""
        asked = (result.run_id, result.step, result.attempt or 1)
        proves = keys.capability_fields(*asked, result.tool, result.task, result.round)
        key = keys.result(*asked, result.task, result.round)
        payload = result.model_dump(by_alias=True)
        message = OutgoingMessage(subjects.TOOL_RESULT, key, payload, result.run_id, proves=proves)
        await self.turns.publisher.publish(message, at=result.completed_at)

    async def _copy_artifact(self, parent_run_id: str, run_id: str, path: str) -> dict[str, JsonValue] | None:
        """Copies an artifact to the parent. None if it is missing or was replaced."""
        content = None
        with suppress(ArtifactReplaced):
            content = await self.artifacts.get(run_id, path)
        if content is None:
            return None
        sha256 = hashlib.sha256(content).hexdigest()
        copied = name_for(path, sha256)
        await self.artifacts.put(parent_run_id, copied, content)
        return {"path": copied, "size": len(content), "sha256": sha256, "of": path}

    def _read(self, arrival: InboundMessage) -> ToolRequest:
        """Raises InvalidMessage."""
        try:
            request = Envelope[ToolRequest].model_validate_json(arrival.body).payload
        except ValidationError as error:
            raise InvalidMessage(f"not a valid {arrival.subject}: {validation_flaws(error)}") from error
        if not self.turns.publisher.capabilities.proves(request):
            raise InvalidMessage(f"it brings no capability of a request of run {request.run_id}: it counts for nothing")
        return request


def name_for(path: str, sha256: str) -> str:
    """The own name with a part of its digest, by which a tool recognises it."""
    name, mark = PurePosixPath(path), f"-relayed-{sha256[:DIGEST_DIGITS]}"
    stem = name.stem.removesuffix(mark)[:LONGEST_STEM]
    suffix = name.suffix if len(name.suffix) <= LONGEST_SUFFIX else ""
    return f"artifacts/{stem}{mark}{suffix}"


def result_of(state: RunState, artifacts: Sequence[JsonValue] | None = None) -> ToolResult | None:
    """Result of an ended child, from its state alone; None for any other run. `artifacts`: their copies."""
    parent, waiting = state.brief.as_step, state.waiting
    if parent is None or not isinstance(waiting, Ended):
        return None
    left = (p for p in waiting.out if p.grant is None and not acting.is_repeatable(state, p))
    known = dict.fromkeys((doubt.tool, doubt.call) for doubt in (*state.doubts, *map(acting.new_doubt, left)))
    spent = waiting.stop.spent
    usage = ChildUsage.model_validate(spent, from_attributes=True)
    output: dict[str, JsonValue] = {
        "summary": str(state.reason),
        "run_id": state.run_id,
        "status": state.status.value,
        "usage": usage.model_copy(update={"steps": state.step + spent.child_steps}).model_dump(),
    }
    if not state.brief.limits.deadline_named:
        output["deadline_at"] = state.brief.limits.deadline_at.isoformat()
    if state.artifacts:
        output["artifacts"] = [{"path": path} for path in state.artifacts] if artifacts is None else [*artifacts]
    if known:
        output["doubts"] = [{"tool": tool, "call": call} for tool, call in known]
    error = None if state.status is Status.DONE else _error(state, {tool for tool, _ in known})
    brought = ToolOutput.model_validate(output)
    return _result(parent, waiting.at, error, result=brought, untrusted=bool(state.tainted_by))


def _unmade(
    parent: RunState, pending: Pending, error_class: str, message: str, spent: ChildUsage | None = None
) -> ToolResult:
    """Result of a call without a readable child."""
    error = ToolError(error_class=error_class, message=message[:LONGEST_MESSAGE], retryable=False)
    output = ToolOutput.model_validate({"usage": spent.model_dump()}) if spent else None
    return _result(asked_by(parent, pending), pending.requested_at, error, result=output)


def _result(of: Parent, at: datetime, error: ToolError | None, **brought: Any) -> ToolResult:
    named = {"attempt": of.attempt, "task": of.task or None, "round": of.round or None}
    about = {"run_id": of.run_id, "step": of.step, "tool": catalog.NAME, "completed_at": at, **named}
    return ToolResult(status="error" if error else "ok", error=error, **about, **brought)


def _error(state: RunState, doubted: set[str]) -> ToolError:
    facts = "".join(f"\n- {fact}" for fact in state.facts)
    parts = (
        f"the run {state.run_id} {_ENDED[state.status]} ({state.ending_class}): {state.reason}",
        f"whether its write by {', '.join(sorted(doubted))} was carried out is not known" if doubted else "",
        f"it had learned:{facts}" if facts else "",
    )
    message = "; ".join(filter(None, parts))[:LONGEST_MESSAGE]
    return ToolError(error_class=f"child_{state.status}", message=message, retryable=False)


# The wake of a child


class BadCall(ValueError):
    """The call cannot wake a run; the text says why."""


def wake(parent: RunState, pending: Pending, *, at: datetime) -> WakeAccepted:
    """Raises BadCall."""
    brief, run_id = parent.brief, limits.child_run_id(parent.run_id, pending)
    call = _call(parent, pending)
    context = _context(call)
    texts = (call.goal, json.dumps(context, ensure_ascii=False))
    given = Brief(
        goal=call.goal,
        limits=_limits(brief.limits, call, pending.grant or NOTHING),
        context=context,
        fused=brief.fused,
        short_rules=brief.short_rules,
        verify=brief.verify,
        depth=brief.depth + 1,
        parent=asked_by(parent, pending),
        tools=call.tools or tuple(skill.name for skill in brief.skills),
        announced=True,
        trace_url=trace_url_of_child(brief.trace_url, parent.run_id, run_id),
        untrusted=bool(parent.tainted_by),
        caller=brief.caller,
        named=egress.child_addresses(parent, texts) if parent.tainted_by else (),
    )
    return WakeAccepted(
        at=at,
        run_id=run_id,
        wake_id=f"{WAKE_PREFIX}{run_id}",
        brief=given,
        by=f"run {parent.run_id}",
        doubts=parent.doubts,
        refused=tuple(replace(ruling, step=0, words=0) for ruling in refusals_in_force(parent).values()),
    )


def asked_by(parent: RunState, pending: Pending) -> Parent:
    return Parent(run_id=parent.run_id, attempt=pending.attempt, **pending.ref)


def _call(parent: RunState, pending: Pending) -> AgentCall:
    try:
        call = AgentCall.model_validate(action_as_sent(parent, pending).payload)
    except ValidationError as error:
        raise BadCall(f"arguments of {pending.action.tool}: {validation_flaws(error)}") from error
    unknown = sorted(set(call.tools or ()) - {skill.name for skill in parent.brief.skills})
    if unknown:
        raise BadCall(f"tools {', '.join(unknown)} are not on offer here, so no other agent gets them")
    return call


def _context(call: AgentCall) -> dict[str, JsonValue]:
    given = {name: value for name, value in call.context.items() if name != DEPTH}
    if not call.evidence:
        return given
    share = max(0, MAX_CONTEXT - _length(given)) // len(call.evidence)
    while _length(whole := given | {"evidence": [_shortened(one, share) for one in call.evidence]}) > MAX_CONTEXT:
        if share < LEAST_EVIDENCE:  # the given context leaves no room, and is not cut for evidence
            return given
        share = share * 4 // 5
    return whole


def _length(value: JsonValue) -> int:
    return len(json.dumps(value, ensure_ascii=False))


def _shortened(one: dict[str, JsonValue], share: int) -> dict[str, JsonValue]:
    text = json.dumps(one, ensure_ascii=False)
    return one if len(text) <= share else {"task": one.get("task"), "cut": clipped(text, share)}


def _limits(of_parent: Limits, call: AgentCall, grant: Grant) -> Limits:
    asked_until = call.constraints.deadline_at
    return replace(
        of_parent,
        max_steps=grant.steps,
        max_tokens=grant.tokens,
        max_cost_usd=grant.cost_usd,
        deadline_at=min(asked_until, of_parent.deadline_at) if asked_until else of_parent.deadline_at,
        deadline_named=of_parent.deadline_named or asked_until is not None,
        on_budget="escalate",
        reopen_days=0.0,
    )
