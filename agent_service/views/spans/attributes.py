"""Span attributes, by the names of `groundwork.telemetry.names`.

Without content only names, numbers and classes: any text may hold what a run has seen.
"""

import json
from collections.abc import Callable, Iterable, Mapping

from pydantic import JsonValue, TypeAdapter

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


def everywhere(event: WakeAccepted) -> Attributes:
    """On every span, so that a search for the run finds all."""
    return {names.RUN_ID: event.run_id, names.WAKE_ID: event.wake_id, names.CONVERSATION_ID: event.run_id}


def run(agent: str, event: WakeAccepted, end: Ended, content: Content | None) -> Attributes:
    spent = end.spent
    about: Attributes = {
        names.OPERATION: "invoke_agent",
        names.AGENT_NAME: agent,
        names.STATE: end.status.value,
        names.WHY: end.ending_class,
        names.STEPS: end.steps,
        names.CALLS: spent.calls,
        names.INPUT_TOKENS: spent.input_tokens,
        names.OUTPUT_TOKENS: spent.output_tokens,
    }
    about |= {names.COST_USD: spent.cost_usd} if spent.cost_usd is not None else {}
    return about | _said(content, {names.GOAL: event.brief.goal, names.REASON: end.reason})


def call(record: Record, item: Item, state: RunState | None, content: Content | None) -> Attributes:
    """`record` is the one that ended it. `state`: the run when the call was asked for."""
    about: Attributes = {names.OPERATION: "chat", names.STEP: item.step or 0}
    if item.phase and item.call:
        about |= {names.PHASE: item.phase.value, names.CALL: item.call}
    about |= {names.REQUEST_MODEL: item.model} if item.model else {}
    if item.reply:
        about |= _replied(item.reply, content) | _ruled(*record.all(Decided))
    if content and state and item.phase and item.started_at:
        fused, now = state.brief.fused, item.started_at
        prompt = content(Question(state=state, call=item.call or 0, phase=item.phase, with_plan=fused, now=now))
        message: JsonValue = [{"role": "user", "parts": _parts(prompt.user)}]
        told: dict[str, JsonValue] = {names.SYSTEM_INSTRUCTIONS: _parts(prompt.system), names.INPUT_MESSAGES: message}
        about |= _said(content, told)
    return about


def _replied(reply: ModelReplied, content: Content | None) -> Attributes:
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


def _ruled(first: Decided, along: Decided | None = None) -> Attributes:
    """Whether the decision was taken up, and the plan that came along with it."""
    about: Attributes = {names.RULING: first.status, names.REPAIRS: first.attempt - 1}
    return about | ({names.PLAN_RULING: along.status} if along else {})


def step(run_id: str, record: Record, item: Item, content: Content | None) -> Attributes:
    task = _task(item)
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


def attempt(item: Item) -> Attributes:
    numbers: Attributes = {names.STEP: item.step or 0, **_task(item), names.ATTEMPT: item.attempt or 0}
    return numbers | {names.TOOL_NAME: item.tool or ""}


def wait(item: Item) -> Attributes:
    about: Attributes = {names.WAITING_FOR: item.about["kind"]}
    return about | ({names.WHY: item.about["why"]} if "why" in item.about else {})


def _task(item: Item) -> Attributes:
    return {names.TASK: item.task, names.ROUND: item.round or 0} if item.task else {}


def _parts(texts: Iterable[str]) -> JsonValue:
    return [{"type": "text", "content": text} for text in texts]


def _said(content: Content | None, values: Mapping[str, JsonValue]) -> Attributes:
    return {name: _text(value)[:MOST_CONTENT] for name, value in values.items()} if content else {}


def _text(value: JsonValue) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()
