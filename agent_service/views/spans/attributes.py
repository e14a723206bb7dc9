"""Span attributes, by the names of `groundwork.telemetry.names`.

Without content only names, numbers and classes: any text may hold what a run has seen.
"""

import json
from collections.abc import Callable, Iterable, Mapping

from pydantic import JsonValue, TypeAdapter

from agent_service.core.attempts import Pending
from agent_service.core.events import ModelReplied, ToolReturned, WakeAccepted
from agent_service.core.facts import Decided, Ended
from agent_service.core.phases import Decision, Next, Unusable
from agent_service.core.state import RunState
from agent_service.history.items import Item
from agent_service.run.journal import Record
from agent_service.run.ports import PromptText, Question
from groundwork.telemetry import names
from groundwork.telemetry.span import Value

MOST_CONTENT = 32_768

Attributes = dict[str, Value]
Content = Callable[[Question], PromptText]
"""Makes the prompt of a call; None where spans carry no content."""

_DECISIONS: TypeAdapter[tuple[Decision, Next | Unusable | None]] = TypeAdapter(tuple[Decision, Next | Unusable | None])


def of_run(event: WakeAccepted) -> Attributes:
    """On every span, so that a search for the run finds all."""
    return {names.RUN_ID: event.run_id, names.WAKE_ID: event.wake_id, names.CONVERSATION_ID: event.run_id}


def run(agent: str, event: WakeAccepted, content: Content | None) -> Attributes:
    about: Attributes = {names.OPERATION: "invoke_agent", names.AGENT_NAME: agent}
    return about | _said(content, {names.GOAL: event.goal})


def ending(ended: Ended, content: Content | None) -> Attributes:
    spent = ended.spent
    about: Attributes = {
        names.STATE: ended.status.value,
        names.WHY: ended.ending_class,
        names.STEPS: ended.steps,
        names.CALLS: spent.calls,
        names.INPUT_TOKENS: spent.input_tokens,
        names.OUTPUT_TOKENS: spent.output_tokens,
    }
    if spent.cost_usd is not None:
        about[names.COST_USD] = spent.cost_usd
    return about | _said(content, {names.REASON: ended.reason})


def call(record: Record, item: Item, state: RunState | None, content: Content | None) -> Attributes:
    """`record` is the one that ended it. `state`: the run when the call was asked for."""
    about: Attributes = {names.OPERATION: "chat", names.STEP: item.step or 0}
    if item.phase and item.call:
        about |= {names.PHASE: item.phase.value, names.CALL: item.call}
    if item.model:
        about[names.REQUEST_MODEL] = item.model
    if isinstance(record.event, ModelReplied):
        about |= replied(record.event, content) | ruled(*record.all(Decided))
    if content is None or state is None or item.phase is None or item.started_at is None:
        return about
    prompt = content(
        Question(
            state=state,
            call=item.call or 0,
            phase=item.phase,
            with_plan=state.brief.fused,
            now=item.started_at,
        )
    )
    message: JsonValue = [{"role": "user", "parts": _parts(prompt.user)}]
    return about | _said(content, {names.SYSTEM_INSTRUCTIONS: _parts(prompt.system), names.INPUT_MESSAGES: message})


def replied(reply: ModelReplied, content: Content | None) -> Attributes:
    usage, made = reply.usage, reply.provenance
    about: Attributes = {
        names.RESPONSE_MODEL: reply.model,
        names.INPUT_TOKENS: usage.input_tokens,
        names.OUTPUT_TOKENS: usage.output_tokens,
        names.CACHE_READ_TOKENS: usage.cache_read_tokens,
        names.gen_ai().cache_write_tokens: usage.cache_write_tokens,
    }
    if usage.cost_usd is not None:
        about[names.COST_USD] = usage.cost_usd
    if made:
        known = {names.PROVIDER: made.provider, names.RESPONSE_ID: made.reply_id, names.CACHE_MISS: made.cache_miss}
        about |= {name: value for name, value in known.items() if value}
        about |= {names.FINISH_REASONS: (made.stop_reason,)} if made.stop_reason else {}
    decisions = _DECISIONS.dump_python((reply.decision, reply.plan), mode="json") if content else ()
    message: JsonValue = [{"role": "assistant", "parts": _parts(_text(one) for one in decisions if one)}]
    return about | _said(content, {names.OUTPUT_MESSAGES: message})


def ruled(first: Decided, along: Decided | None = None) -> Attributes:
    """Whether the decision was taken up, and the plan that came along with it."""
    about: Attributes = {names.RULING: first.status, names.REPAIRS: first.attempt - 1}
    return about | ({names.PLAN_RULING: along.status} if along else {})


def step(run_id: str, record: Record, item: Item, content: Content | None) -> Attributes:
    task: Attributes = {names.TASK: item.task, names.ROUND: item.round} if item.task else {}
    about: Attributes = {
        names.OPERATION: "execute_tool",
        names.TOOL_NAME: item.tool or "",
        names.TOOL_CALL_ID: ":".join((run_id, str(item.step), *map(str, task.values()))),
        names.TOOL_COMMAND: item.command or "",
        names.STEP: item.step or 0,
        **task,
    }
    said: dict[str, JsonValue] = {names.TOOL_ARGUMENTS: item.about.get("arguments", {})}
    if isinstance(record.event, ToolReturned) and record.event.result.step == item.step:
        output = record.event.result.result
        said |= {names.TOOL_RESULT: output.model_dump(mode="json", exclude_none=True)} if output else {}
    return about | _said(content, said)


def attempt(pending: Pending) -> Attributes:
    tool = pending.action.tool
    return {names.STEP: pending.step, **_task(pending), names.ATTEMPT: pending.attempt, names.TOOL_NAME: tool}


def wait(item: Item) -> Attributes:
    about: Attributes = {names.WAITING_FOR: item.about["kind"]}
    return about | ({names.WHY: item.about["why"]} if "why" in item.about else {})


def _task(pending: Pending) -> Attributes:
    return {names.TASK: pending.task, names.ROUND: pending.round} if pending.task else {}


def _parts(texts: Iterable[str]) -> JsonValue:
    return [{"type": "text", "content": text} for text in texts]


def _said(content: Content | None, values: Mapping[str, JsonValue]) -> Attributes:
    return {name: _text(value)[:MOST_CONTENT] for name, value in values.items()} if content else {}


def _text(value: JsonValue) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()
