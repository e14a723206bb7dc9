"""Span attributes, by the names of `groundwork.telemetry.names`.

Without content only names, numbers and classes: any text may hold what a run has seen.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from pydantic import JsonValue, TypeAdapter

from agent_service.core.events import ModelReplied
from agent_service.core.phases import Decision, Next, Phase, Unusable
from agent_service.core.state import RunState
from agent_service.core.waiting import Asking
from agent_service.run.ports import PromptText, Question
from agent_service.telling.history.items import TimelineItem
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
    """Of a run that has ended."""
    spent = run.spent
    about: Attributes = {
        names.OPERATION: "invoke_agent",
        names.AGENT_NAME: agent,
        names.STATE: run.status.value,
        names.WHY: run.ending_class,
        names.STEPS: run.step,
        names.CALLS: spent.calls,
        names.INPUT_TOKENS: spent.input_tokens,
        names.OUTPUT_TOKENS: spent.output_tokens,
    }
    if spent.cost_usd is not None:
        about[names.COST_USD] = spent.cost_usd
    return about | _said(content, {names.GOAL: run.brief.goal, names.REASON: run.reason})


def call(run: RunState, asking: Asking, item: TimelineItem, content: Content | None) -> Attributes:
    """`run` as it stands when the model is asked."""
    about: Attributes = {
        names.OPERATION: "chat",
        names.PHASE: asking.phase.value,
        names.CALL: asking.call,
        names.STEP: run.step + (asking.phase is Phase.PLAN),
        names.REPAIRS: asking.repairs,
        names.TRIES: asking.tries,
    }
    if item.model:
        about[names.REQUEST_MODEL] = item.model
    if content is None:
        return about
    at = item.started_at
    prompt = content(Question(state=run, call=asking.call, phase=asking.phase, with_plan=run.brief.fused, now=at))
    message: JsonValue = [{"role": "user", "parts": _parts(prompt.user)}]
    return about | _said(content, {names.SYSTEM_INSTRUCTIONS: _parts(prompt.system), names.INPUT_MESSAGES: message})


def replied(reply: ModelReplied, became: Sequence[Ruling], content: Content | None) -> Attributes:
    """`became`: whether the decision was taken up, and the plan that came along with it."""
    usage, made = reply.usage, reply.provenance
    about: Attributes = {
        names.RESPONSE_MODEL: reply.model,
        names.INPUT_TOKENS: usage.input_tokens,
        names.OUTPUT_TOKENS: usage.output_tokens,
        names.CACHE_READ_TOKENS: usage.cache_read_tokens,
        names.gen_ai().cache_write_tokens: usage.cache_write_tokens,
    }
    about |= {name: one.status for name, one in zip((names.RULING, names.PLAN_RULING), became, strict=False)}
    if usage.cost_usd is not None:
        about[names.COST_USD] = usage.cost_usd
    if made:
        known = {names.PROVIDER: made.provider, names.RESPONSE_ID: made.reply_id, names.CACHE_MISS: made.cache_miss}
        about |= {name: value for name, value in known.items() if value}
        about |= {names.FINISH_REASONS: (made.stop_reason,)} if made.stop_reason else {}
    decisions = _DECISIONS.dump_python((reply.decision, reply.plan), mode="json") if content else ()
    message: JsonValue = [{"role": "assistant", "parts": _parts(_text(one) for one in decisions if one)}]
    return about | _said(content, {names.OUTPUT_MESSAGES: message})


def step(run_id: str, item: TimelineItem, arguments: JsonValue, content: Content | None) -> Attributes:
    task = _task(item)
    about: Attributes = {
        names.OPERATION: "execute_tool",
        names.TOOL_NAME: item.tool or "",
        names.TOOL_CALL_ID: ":".join((run_id, str(item.step), *map(str, task.values()))),
        names.TOOL_COMMAND: item.command or "",
        names.STEP: item.step or 0,
    }
    return about | task | _said(content, {names.TOOL_ARGUMENTS: arguments})


def result(run: RunState, step: int, content: Content | None) -> Attributes:
    output = run.last_result.output if run.last_result and run.last_result.step == step else None
    return _said(content, {names.TOOL_RESULT: output}) if output is not None else {}


def attempt(item: TimelineItem) -> Attributes:
    about: Attributes = {names.STEP: item.step or 0, names.ATTEMPT: item.attempt or 0, names.TOOL_NAME: item.tool or ""}
    return about | _task(item)


def wait(kind: str, run: RunState) -> Attributes:
    about: Attributes = {names.WAITING_FOR: kind}
    return about | ({names.WHY: run.ending_class} if run.stop else {})


def _task(item: TimelineItem) -> Attributes:
    return {names.TASK: item.task, names.ROUND: item.round or 0} if item.task else {}


def _parts(texts: Iterable[str]) -> JsonValue:
    return [{"type": "text", "content": text} for text in texts]


def _said(content: Content | None, values: Mapping[str, JsonValue]) -> Attributes:
    return {name: _text(value)[:MOST_CONTENT] for name, value in values.items()} if content else {}


def _text(value: JsonValue) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()
