"""The trace of a run: each item of its history becomes a span when it ends. The same journal gives the same bytes.

    invoke_agent agentic-loop       the run: from its acceptance to its end
      wait queued
      chat MODEL                    a model call
      execute_tool TOOL             a step, with all of its attempts
        attempt 1                   the parent of its executor's spans
        attempt 2 …
        execute_tool TOOL           a task of it, and each time that it is asked again
          attempt 1 …
      wait approval, wait question, wait person, wait model_retry, wait time
      invoke_agent agentic-loop     from when an answer opened an escalated run again to its next end

Instants are those of the entries. Ids follow from the run and the item; that of an attempt is the one which the
`traceparent` of its request names. Without content a span carries names, numbers and classes, and no text of goals,
models or tools.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import JsonValue, TypeAdapter

from agent_service.core.brief import Parent
from agent_service.core.phases import Decision, Next, Unusable
from agent_service.history.history import History, rests
from agent_service.history.items import Item, Thought
from agent_service.history.results import result_of
from agent_service.run.changes import ChangeRecord, retell
from agent_service.run.journal import Entry, Record
from agent_service.run.ports import PromptText, Question
from agent_service.trust.identity import root_span_id, trace_id
from agent_service.views.journal import question_of
from groundwork.telemetry.settings import latest_gen_ai
from groundwork.telemetry.span import Context, Span, Value, context_of, span_id
from schemas import keys

AGENT = "agentic-loop"
MOST_CONTENT = 32_768

Attributes = dict[str, Value]
"""By the names of the OpenTelemetry conventions (semantic-conventions 1.41), and ours (`agentic.…`)."""
Content = Callable[[Question], PromptText]
"""Renders the prompt of a call; None for spans without content."""
_DECISIONS: TypeAdapter[tuple[Decision, Next | Unusable | None]] = TypeAdapter(tuple[Decision, Next | Unusable | None])


def stretch(
    entries: Sequence[Entry], *, since: datetime | None = None, content: Content | None = None
) -> Sequence[Span]:
    """The spans that ended after the last rest before the newest of `entries`, or before `since`; `entries` begin with
    the run's first. Raises Damaged, and ValueError for a journal that cannot be told.
    """
    changes = tuple(retell(entries)) if content else ()
    trace, told, is_told = Trace(content, changes), list[Span](), False
    for record in (entry.record() for entry in entries):
        if is_told:
            told.clear()
        told += trace.ended(record)
        is_told = rests(record) and (since is None or record.at < since)
    return told


class Trace:
    """`changes`: all of the run, for prompts; only needed with content."""

    def __init__(self, content: Content | None, changes: Sequence[ChangeRecord]) -> None:
        self._content = content
        self._changes = changes
        self._history = History()

    def ended(self, record: Record) -> Iterator[Span]:
        """The spans that end with this entry."""
        for item in self._history.ends([record]):
            if not (item.again and item.opened_in == record.entry.seq):
                yield from self._of(record, item)

    @property
    def _run_id(self) -> str:
        return self._history.accepted.run_id

    def _of(self, record: Record, item: Item) -> Iterator[Span]:
        match item.kind:
            case "accepted":
                yield self._span(item, "wait queued", {"agentic.waiting_for": "queued"})
            case "phase" if not (item.thought and item.thought.became.along):
                about = self._call(item)
                yield self._span(item, f"chat {item.model}" if item.model else "chat", about, kind="client")
            case "step" | "task":
                yield self._span(item, f"execute_tool {item.tool}", self._step(record, item))
            case "attempt" if ":attempt:" in item.id:
                child = item.child_run_id
                links = (Context(trace_id=trace_id(child), span_id=root_span_id(child)),) if child else ()
                about = {**_numbers(item), "agentic.attempt": item.attempt or 0, "gen_ai.tool.name": item.tool or ""}
                yield self._span(item, f"attempt {item.attempt}", about, links=links)
            case "wait" if item.about["kind"] != "tool_retry":
                about = _known({"agentic.waiting_for": item.about["kind"], "agentic.class": item.about.get("why")})
                yield self._span(item, f"wait {item.about['kind']}", about)
            case "ending":
                yield self._run(item)

    def _span(self, item: Item, name: str, about: Attributes, **told: Any) -> Span:
        above, run_id, error = self._history.by_id.get(item.parent or ""), self._run_id, _error(item)
        known = {
            "agentic.run_id": run_id,
            "agentic.wake_id": self._history.accepted.wake_id,
            "gen_ai.conversation.id": run_id,
        }
        ids = {"span_id": span_id(self._key(item)), "parent_id": span_id(self._key(above)) if above else self._root()}
        return Span(
            trace_id=trace_id(run_id),
            name=name,
            started_at=item.opened_at or item.started_at,
            ended_at=item.ended_at or item.started_at,
            attributes=known | about | _known({"error.type": error}),
            error=error,
            **(ids | told),
        )

    def _key(self, item: Item) -> str:
        """An item that went on after the run's end is a second span, with its own id."""
        key = f"{self._run_id}:{item.id}"
        if item.kind == "attempt":
            key = keys.request(self._run_id, item.step or 0, item.attempt or 0, *item.name[1:])
        return f"{key}:{item.again}" if item.again else key

    def _root(self) -> str:
        again = self._history.reopened
        return span_id(f"{self._run_id}:reopened:{again}") if again else root_span_id(self._run_id)

    def _run(self, item: Item) -> Span:
        event, again = self._history.accepted, self._history.reopened > 0
        links = () if again else (context_of(event.traceparent), _request_of(event.brief.parent))
        about: Attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": AGENT}
        if end := item.end:
            told = (end.status.value, end.ending_class, end.steps, end.spent.calls)
            about |= dict(zip(("agentic.state", "agentic.class", "agentic.steps", "agentic.calls"), told, strict=True))
            about |= {
                "gen_ai.usage.input_tokens": end.spent.input_tokens,
                "gen_ai.usage.output_tokens": end.spent.output_tokens,
            }
            about |= _known({"agentic.cost_usd": end.spent.cost_usd})
        about |= self._said({"agentic.goal": event.brief.goal, "agentic.reason": item.text})
        ids = {"span_id": self._root(), "parent_id": root_span_id(self._run_id) if again else None}
        return self._span(item, f"invoke_agent {AGENT}", about, links=tuple(filter(None, links)), **ids)

    def _call(self, item: Item) -> Attributes:
        about: Attributes = {"gen_ai.operation.name": "chat", "agentic.step": item.step or 0}
        about |= _known({"agentic.phase": item.phase, "agentic.call": item.call, "gen_ai.request.model": item.model})
        if item.thought:
            along = self._history.by_id.get(f"call:{item.call}:plan")
            about |= self._replied(item.thought, along.thought if along else None)
        if self._content:
            prompt = self._content(question_of(item, self._changes))
            user: JsonValue = [{"role": "user", "parts": _parts(prompt.user)}]
            about |= self._said({"gen_ai.system_instructions": _parts(prompt.system), "gen_ai.input.messages": user})
        return about

    def _replied(self, thought: Thought, along: Thought | None) -> Attributes:
        """Also what became of the decision, and of the plan that came `along` with it."""
        reply, usage, made = thought.reply, thought.reply.usage, thought.reply.provenance
        written = "cache_write" if latest_gen_ai() else "cache_creation"
        about = _known(
            {
                "gen_ai.response.model": reply.model,
                "gen_ai.usage.input_tokens": usage.input_tokens,
                "gen_ai.usage.output_tokens": usage.output_tokens,
                "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
                f"gen_ai.usage.{written}.input_tokens": usage.cache_write_tokens,
                "agentic.cost_usd": usage.cost_usd,
                "agentic.ruling": thought.became.status,
                "agentic.repairs": thought.became.attempt - 1,
                "agentic.plan_ruling": along.became.status if along else None,
            }
        )
        if made:
            about |= _known({"gen_ai.provider.name": made.provider, "gen_ai.response.id": made.reply_id})
            about |= _known({"agentic.cache_miss": made.cache_miss})
            about |= {"gen_ai.response.finish_reasons": (made.stop_reason,)} if made.stop_reason else {}
        decisions = _DECISIONS.dump_python((reply.decision, reply.plan), mode="json") if self._content else ()
        said: JsonValue = [{"role": "assistant", "parts": _parts(_text(one) for one in decisions if one)}]
        return about | self._said({"gen_ai.output.messages": said})

    def _step(self, record: Record, item: Item) -> Attributes:
        request = (self._run_id, item.step, *item.name[1:]) if item.task else (self._run_id, item.step)
        about: Attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": item.tool or "",
            "gen_ai.tool.call.id": ":".join(map(str, request)),
            "agentic.tool_command": item.command or "",
            **_numbers(item),
        }
        said: dict[str, JsonValue] = {"gen_ai.tool.call.arguments": item.about.get("arguments", {})}
        result = result_of(record, item.step or 0)
        if result and result.result:
            said |= {"gen_ai.tool.call.result": result.result.model_dump(mode="json", exclude_none=True)}
        return about | self._said(said)

    def _said(self, values: Mapping[str, JsonValue]) -> Attributes:
        return {name: _text(value)[:MOST_CONTENT] for name, value in values.items()} if self._content else {}


def _known(told: Mapping[str, Value | None]) -> Attributes:
    return {name: value for name, value in told.items() if value not in (None, "")}


def _numbers(item: Item) -> Attributes:
    return _known({"agentic.step": item.step or 0, "agentic.task": item.task, "agentic.round": item.round})


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
