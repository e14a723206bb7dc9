"""Span attributes, by the names of `groundwork.telemetry.names`.

Without content only names, numbers and classes: any text may hold what a run has seen.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from pydantic import JsonValue, TypeAdapter

from agent_service.core.events import ModelReplied
from agent_service.core.phases import Decision, Next, Phase, Unusable
from agent_service.core.state import RunState
from agent_service.core.tools.attempts import Pending
from agent_service.core.waiting import Asking
from agent_service.run.ports import PromptText, Question
from agent_service.telling.rulings import Ruling
from groundwork.telemetry import names
from groundwork.telemetry.span import Value

MOST_CONTENT = 32_768

Attributes = dict[str, Value]
Content = Callable[[Question], PromptText]
"""Makes the prompt of a call; None where spans carry no content."""

_DECISIONS: TypeAdapter[tuple[Decision, Next | Unusable | None]] = TypeAdapter(tuple[Decision, Next | Unusable | None])


def of_run(run: RunState) -> Attributes:
    """On every span, so that a search for the run finds all."""
    return {names.RUN_ID: run.run_id, names.WAKE_ID: run.wake_id, names.CONVERSATION_ID: run.run_id}


def run(agent: str, run: RunState, content: Content | None) -> Attributes:
    about: Attributes = {names.OPERATION: "invoke_agent", names.AGENT_NAME: agent}
    return about | _said(content, {names.GOAL: run.brief.goal})


def ending(run: RunState, content: Content | None) -> Attributes:
    spent = run.spent
    about: Attributes = {
        names.STATE: run.status.value,
        names.WHY: run.ending_class,
        names.STEPS: run.step,
        names.CALLS: spent.calls,
        names.INPUT_TOKENS: spent.input_tokens,
        names.OUTPUT_TOKENS: spent.output_tokens,
    }
    if spent.cost_usd is not None:
        about[names.COST_USD] = spent.cost_usd
    return about | _said(content, {names.REASON: run.reason})


def call(run: RunState, asking: Asking, at: datetime, content: Content | None) -> Attributes:
    about: Attributes = {
        names.OPERATION: "chat",
        names.PHASE: asking.phase.value,
        names.CALL: asking.call,
        names.STEP: run.step + (asking.phase is Phase.PLAN),
        names.REPAIRS: asking.repairs,
        names.TRIES: asking.tries,
    }
    if content is None:
        return about
    prompt = content(Question(state=run, call=asking.call, phase=asking.phase, with_plan=run.brief.fused, now=at))
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


def ruled(first: Ruling, along: Ruling | None = None) -> Attributes:
    """Whether the decision was taken up, and the plan that came along with it."""
    about: Attributes = {names.RULING: first.status}
    return about | ({names.PLAN_RULING: along.status} if along else {})


def step(run: RunState, pending: Pending, content: Content | None) -> Attributes:
    about: Attributes = {
        names.OPERATION: "execute_tool",
        names.TOOL_NAME: pending.action.tool,
        names.TOOL_CALL_ID: ":".join((run.run_id, str(pending.step), *map(str, _task(pending).values()))),
        names.TOOL_COMMAND: pending.action.command,
        names.STEP: pending.step,
        **_task(pending),
    }
    return about | _said(content, {names.TOOL_ARGUMENTS: pending.action.arguments})


def result(run: RunState, step: int, content: Content | None) -> Attributes:
    output = run.last_result.output if run.last_result and run.last_result.step == step else None
    return _said(content, {names.TOOL_RESULT: output}) if output is not None else {}


def attempt(pending: Pending) -> Attributes:
    tool = pending.action.tool
    return {names.STEP: pending.step, **_task(pending), names.ATTEMPT: pending.attempt, names.TOOL_NAME: tool}


def wait(kind: str, run: RunState) -> Attributes:
    about: Attributes = {names.WAITING_FOR: kind}
    return about | ({names.WHY: run.ending_class} if run.stop else {})


def _task(pending: Pending) -> Attributes:
    return {names.TASK: pending.task, names.ROUND: pending.round} if pending.task else {}


def _parts(texts: Iterable[str]) -> JsonValue:
    return [{"type": "text", "content": text} for text in texts]


def _said(content: Content | None, values: Mapping[str, JsonValue]) -> Attributes:
    return {name: _text(value)[:MOST_CONTENT] for name, value in values.items()} if content else {}


def _text(value: JsonValue) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()
