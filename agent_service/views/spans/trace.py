"""The trace of a run: each item of its history becomes a span at its end. The same journal gives the same bytes.

    invoke_agent agentic-loop       the run: from its acceptance to its end
      wait queued
      chat MODEL                    a model call
      execute_tool TOOL             a step, with all of its attempts
        attempt 1, attempt 2 …      the parents of its executor's spans
        execute_tool TOOL           a task of it, and each repetition
      wait approval, wait question, wait person, wait model_retry, wait time
      invoke_agent agentic-loop     an escalated run from its reopening to its next end

Instants are those of the entries. Span ids are derived from run and item; an attempt has the id in the `traceparent` of
its request. Without content a span has names, numbers and classes, and no text of goals, models or tools.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import JsonValue

from agent_service.core.brief import Parent
from agent_service.history.history import History, rests
from agent_service.history.items import Item
from agent_service.history.results import result_of
from agent_service.run.journal import Commit, Entry, JournalRecord, replay
from agent_service.run.model_calls import DECISIONS
from agent_service.run.ports import ModelQuestion, PromptText
from agent_service.trust.identity import root_span_id, trace_id
from agent_service.views.journal import question_of
from groundwork.telemetry.settings import uses_latest_gen_ai
from groundwork.telemetry.span import Context, Span, Value, context_of, span_id
from schemas import keys

AGENT = "agentic-loop"
MOST_CONTENT = 32_768

Attributes = dict[str, Value | None]
"""Keys are names of the OpenTelemetry conventions (semantic-conventions 1.41), or ours (`agentic.…`)."""
Content = Callable[[ModelQuestion], PromptText]
"""Renders the prompt of a call; None for spans without content."""
OPERATIONS = {"phase": "chat", "step": "execute_tool", "task": "execute_tool", "ending": "invoke_agent"}
ITEM_ATTRIBUTES = {
    "agentic.phase": ("phase",),
    "agentic.call": ("call",),
    "agentic.step": ("step",),
    "agentic.task": ("task",),
    "agentic.round": ("round",),
    "agentic.attempt": ("attempt",),
    "agentic.tool_command": ("command",),
    "agentic.cost_usd": ("usage.cost_usd", "end.spent.cost_usd"),
    "agentic.state": ("end.status.value",),
    "agentic.class": ("end.ending_class",),
    "agentic.steps": ("end.steps",),
    "agentic.calls": ("end.spent.calls",),
    "agentic.ruling": ("thought.became.status",),
    "agentic.cache_miss": ("thought.reply.provenance.cache_miss",),
    "gen_ai.tool.name": ("tool",),
    "gen_ai.request.model": ("model",),
    "gen_ai.response.model": ("thought.reply.model",),
    "gen_ai.response.id": ("thought.reply.provenance.reply_id",),
    "gen_ai.provider.name": ("thought.reply.provenance.provider",),
    "gen_ai.usage.input_tokens": ("usage.input_tokens", "end.spent.input_tokens"),
    "gen_ai.usage.output_tokens": ("usage.output_tokens", "end.spent.output_tokens"),
    "gen_ai.usage.cache_read.input_tokens": ("usage.cache_read_tokens",),
}
"""Attributes of all spans, with the paths of their values in an item; the first that is not None counts."""


def spans_since_rest(
    entries: Sequence[Entry], *, since: datetime | None = None, content: Content | None = None
) -> Sequence[Span]:
    """Spans that ended after the run last rested, before its newest entry and, if given, before `since`.

    `entries` is the whole journal. Raises Damaged, and ValueError if it cannot be replayed.
    """
    changes = tuple(replay(entries)) if content else ()
    trace, spans, is_sent = Trace(content, changes), list[Span](), False
    for record in (entry.record() for entry in entries):
        if is_sent:
            spans.clear()
        spans += trace.ended(record)
        is_sent = rests(record) and (since is None or record.at < since)
    return spans


class Trace:
    """`changes`: all of the run, to render prompts with content."""

    def __init__(self, content: Content | None, changes: Sequence[Commit]) -> None:
        self._content = content
        self._changes = changes
        self._history = History()

    def ended(self, record: JournalRecord) -> Iterator[Span]:
        for item in self._history.closed_by([record]):
            if not (item.again and item.opened_in == record.entry.seq):
                yield from self._spans_of(record, item)

    @property
    def _run_id(self) -> str:
        return self._history.accepted.run_id

    def _spans_of(self, record: JournalRecord, item: Item) -> Iterator[Span]:
        match item.kind:
            case "accepted":
                yield self._span(item, "wait queued", {"agentic.waiting_for": "queued"})
            case "phase" if not (item.thought and item.thought.became.along):
                yield self._span(item, f"chat {item.model or ''}".strip(), self._call(item), kind="client")
            case "step" | "task" if item.attempt or item.status != "cancelled":
                yield self._span(item, f"execute_tool {item.tool}", self._step(record, item))
            case "attempt" if ":attempt:" in item.id:
                child = item.child_run_id
                links = (Context(trace_id=trace_id(child), span_id=root_span_id(child)),) if child else ()
                yield self._span(item, f"attempt {item.attempt}", {}, links=links)
            case "wait" if item.about["kind"] != "tool_retry":
                about = {"agentic.waiting_for": item.about["kind"], "agentic.class": item.about.get("why")}
                yield self._span(item, f"wait {item.about['kind']}", about)
            case "ending":
                yield self._run_span(item)

    def _span(self, item: Item, name: str, about: Attributes, **fields: Any) -> Span:
        above, run_id, error = self._history.by_id.get(item.parent or ""), self._run_id, _error(item)
        known: Attributes = {"agentic.run_id": run_id, "agentic.wake_id": self._history.accepted.wake_id}
        known |= {"gen_ai.conversation.id": run_id, "gen_ai.operation.name": OPERATIONS.get(item.kind)}
        ids = {"span_id": span_id(self._key(item)), "parent_id": span_id(self._key(above)) if above else self._root()}
        attributes = {**known, **dict(_item_attributes(item)), **about, "error.type": error}
        return Span(
            trace_id=trace_id(run_id),
            name=name,
            started_at=item.opened_at or item.started_at,
            ended_at=item.ended_at or item.started_at,
            attributes={name: value for name, value in attributes.items() if value not in (None, "")},
            error=error,
            **(ids | fields),
        )

    def _key(self, item: Item) -> str:
        """A reopened item is a second span with an id of its own."""
        key = f"{self._run_id}:{item.id}"
        if item.kind == "attempt":
            key = keys.request(self._run_id, item.step or 0, item.attempt or 0, *item.name[1:])
        return f"{key}:{item.again}" if item.again else key

    def _root(self) -> str:
        again = self._history.reopened
        return span_id(f"{self._run_id}:reopened:{again}") if again else root_span_id(self._run_id)

    def _run_span(self, item: Item) -> Span:
        event, again = self._history.accepted, self._history.reopened > 0
        links = () if again else (context_of(event.traceparent), _request_of(event.brief.parent))
        about = self._content_of({"agentic.goal": event.brief.goal, "agentic.reason": item.text})
        ids = {"span_id": self._root(), "parent_id": root_span_id(self._run_id) if again else None}
        about["gen_ai.agent.name"] = AGENT
        return self._span(item, f"invoke_agent {AGENT}", about, links=tuple(filter(None, links)), **ids)

    def _call(self, item: Item) -> Attributes:
        """Includes the ruling on the plan that came along."""
        about: Attributes = {}
        if thought := item.thought:
            reply, made = thought.reply, thought.reply.provenance
            along = self._history.by_id.get(f"call:{item.call}:plan")
            about["agentic.plan_ruling"] = along.thought.became.status if along and along.thought else None
            about["agentic.repairs"] = thought.became.attempt - 1
            about["gen_ai.response.finish_reasons"] = (made.stop_reason,) if made and made.stop_reason else None
            written = "cache_write" if uses_latest_gen_ai() else "cache_creation"
            about[f"gen_ai.usage.{written}.input_tokens"] = reply.usage.cache_write_tokens
            decisions = DECISIONS.dump_python((reply.decision, reply.plan), mode="json") if self._content else ()
            output: JsonValue = [{"role": "assistant", "parts": _parts(_text(one) for one in decisions if one)}]
            about |= self._content_of({"gen_ai.output.messages": output})
        if self._content:
            prompt = self._content(question_of(item, self._changes))
            user: JsonValue = [{"role": "user", "parts": _parts(prompt.user)}]
            prompts = {"gen_ai.system_instructions": _parts(prompt.system), "gen_ai.input.messages": user}
            about |= self._content_of(prompts)
        return about

    def _step(self, record: JournalRecord, item: Item) -> Attributes:
        content: dict[str, JsonValue] = {"gen_ai.tool.call.arguments": item.about.get("arguments", {})}
        result = result_of(record, item.step or 0)
        if result and result.result:
            content["gen_ai.tool.call.result"] = result.result.as_json()
        request = (self._run_id, item.step, *(item.name[1:] if item.task else ()))
        return self._content_of(content) | {"gen_ai.tool.call.id": ":".join(map(str, request))}

    def _content_of(self, values: Mapping[str, JsonValue]) -> Attributes:
        return {name: _text(value)[:MOST_CONTENT] for name, value in values.items()} if self._content else {}


def _item_attributes(item: Item) -> Iterator[tuple[str, Value | None]]:
    for name, paths in ITEM_ATTRIBUTES.items():
        found = (_at(item, path) for path in paths)
        yield name, next((value for value in found if value is not None), None)


def _at(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


def _parts(texts: Iterable[str]) -> JsonValue:
    return [{"type": "text", "content": text} for text in texts]


def _text(value: JsonValue) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()


def _error(item: Item) -> str | None:
    if item.error and item.status not in ("ok", "continuation"):
        return item.error.error_class or "error"
    return "cancelled" if item.status == "cancelled" and item.kind in ("step", "task", "phase") else None


def _request_of(parent: Parent | None) -> Context | None:
    if parent is None or not parent.step:
        return None
    key = keys.request(parent.run_id, parent.step, parent.attempt, parent.task, parent.round)
    return Context(trace_id=trace_id(parent.run_id), span_id=span_id(key))
