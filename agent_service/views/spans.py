"""The trace of a run: each item of its history becomes a span at its end, and is sent when the run ends or rests.

docs/OPERATIONS.md lists the spans. Instants are those of the entries. Span ids are derived from run and item; an
attempt has the id in the `traceparent` of its request. Without content a span has names, numbers and classes, and no
text of goals, models or tools. The same journal gives the same bytes, so the journal is the buffer: after a crash, a
long outage, or the death of another agent of the store, spans since a mark are sent again, and a backend drops those
that it has.
"""

import asyncio
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from agent_service.core.brief import Parent
from agent_service.errors import Damaged, NewerVersion
from agent_service.history.history import History
from agent_service.history.items import Item
from agent_service.history.results import result_of
from agent_service.run.journal import Commit, Entry, JournalRecord, replay
from agent_service.run.model_calls import DECISIONS
from agent_service.run.ports import ModelQuestion, PromptText
from agent_service.store.runs import RunStore
from agent_service.trust.identity import root_span_id, trace_id
from agent_service.views.journal import question_of
from groundwork.service import store_folder
from groundwork.service.json_log import Outage
from groundwork.service.machine import in_daemon_thread, utc_now
from groundwork.telemetry.settings import SendSpans, uses_latest_gen_ai
from groundwork.telemetry.span import Context, Sampler, Span, Value, context_of, span_id
from schemas import keys
from schemas.values import dataclass

AGENT = "agentic-loop"
MOST_CONTENT = 32_768

log = logging.getLogger(__name__)

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
        is_sent = record.rests and (since is None or record.entry.at < since)
    return spans


@dataclass(slots=True)
class Trace:
    """`changes`: all of the run, to render prompts with content."""

    content: Content | None
    changes: Sequence[Commit]
    history: History = field(default_factory=History)

    def ended(self, record: JournalRecord) -> Iterator[Span]:
        for item in self.history.closed_by([record]):
            if not (item.again and item.opened_in == record.entry.seq):
                yield from self._spans_of(record, item)

    @property
    def _run_id(self) -> str:
        return self.history.accepted.run_id

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
        above, run_id, error = self.history.by_id.get(item.parent or ""), self._run_id, _error(item)
        known: Attributes = {"agentic.run_id": run_id, "agentic.wake_id": self.history.accepted.wake_id}
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
        again = self.history.reopened
        return span_id(f"{self._run_id}:reopened:{again}") if again else root_span_id(self._run_id)

    def _run_span(self, item: Item) -> Span:
        event, again = self.history.accepted, self.history.reopened > 0
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
            along = self.history.by_id.get(f"call:{item.call}:plan")
            about["agentic.plan_ruling"] = along.thought.became.status if along and along.thought else None
            about["agentic.repairs"] = thought.became.attempt - 1
            about["gen_ai.response.finish_reasons"] = (made.stop_reason,) if made and made.stop_reason else None
            written = "cache_write" if uses_latest_gen_ai() else "cache_creation"
            about[f"gen_ai.usage.{written}.input_tokens"] = reply.usage.cache_write_tokens
            decisions = DECISIONS.dump_python((reply.decision, reply.plan), mode="json") if self.content else ()
            output: JsonValue = [{"role": "assistant", "parts": _parts(_text(one) for one in decisions if one)}]
            about |= self._content_of({"gen_ai.output.messages": output})
        if self.content:
            prompt = self.content(question_of(item, self.changes))
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
        return {name: _text(value)[:MOST_CONTENT] for name, value in values.items()} if self.content else {}


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


# Sending


MAX_QUEUED = 16_384
MAX_CATCH_UP = timedelta(days=1)
RUNS_PER_BATCH = 16
SPANS_PER_REQUEST = 256
"""Spans per request; at their largest they stay below the limits of receivers."""
SOON_S = 1.0
"""Runs that end or rest within this time are sent together."""
PAUSE_S = 5.0
"""Pause between attempts while the receiver is away."""
FINISH_S = 2.0

MARGIN = timedelta(seconds=60)
"""Largest delay from the instant of an entry to its commit."""


@dataclass(slots=True)
class Traces:
    """`mark`: an empty file whose modification time is the instant up to which runs are traced. If it cannot be read or
    written, only new spans are sent.
    """

    store: RunStore
    send: SendSpans
    mark: Path
    keeps: Sampler
    content: Content | None
    _waiting: dict[str, datetime] = field(init=False, default_factory=dict)
    """Instants from which to send spans, by run."""
    _missed: bool = field(init=False, default=True)
    """True if all runs since the mark must be sent."""
    _work: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _outage: Outage = field(init=False, default_factory=lambda: Outage("the journal, from which traces are made,", log))

    def committed(self, change: Commit) -> None:
        if change.rests:
            self._enqueue(change.entry.run_id, change.entry.at)

    def send_again(self, run_id: str) -> None:
        """Sends the last minute of a run again, because its agent died and may not have sent them."""
        self._enqueue(run_id, utc_now() - MARGIN)

    async def run(self) -> None:
        while True:
            if await self._send_waiting():
                self._work.clear()
                await self._work.wait()
                await asyncio.sleep(SOON_S)
            else:
                await asyncio.sleep(PAUSE_S)

    async def finish(self, within_s: float = FINISH_S) -> None:
        """Sends for up to `within_s` seconds; the rest follows after the next start."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._send_waiting()

    def _enqueue(self, run_id: str, since: datetime) -> None:
        if not self.keeps(trace_id(run_id)):
            return
        if len(self._waiting) < MAX_QUEUED:
            self._add({run_id: since})
        else:
            self._missed = True
        self._work.set()

    def _add(self, runs: Mapping[str, datetime]) -> None:
        for run_id, since in runs.items():
            self._waiting[run_id] = min(since, self._waiting.get(run_id, since))

    async def _send_waiting(self) -> bool:
        now = utc_now()
        try:
            while self._waiting or self._missed:
                if self._missed:
                    await self._queue_missed(now)
                if not await self._send_batch():
                    return False
        except Exception as error:  # noqa: BLE001 - an observer's error must not end the agent
            self._outage.continues(repr(error))
            return False
        self._outage.over()
        self._set_mark(now)
        return True

    async def _queue_missed(self, now: datetime) -> None:
        since = max(self._marked(now), now - MAX_CATCH_UP)
        self._missed = False  # before the read: `_enqueue` may set it meanwhile
        try:
            await self.store.caught_up()  # a run that found the queue full may not be there yet
            moved = await self.store.changed_since(since)
        except BaseException:
            self._missed = True
            raise
        self._add({run_id: since for run_id in moved if self.keeps(trace_id(run_id))})

    def _marked(self, now: datetime) -> datetime:
        """The earliest instant of entries whose spans may be missing. Makes the first mark."""
        with suppress(OSError):
            return min(datetime.fromtimestamp(self.mark.stat().st_mtime, UTC), now) - MARGIN
        self._set_mark(now)
        return now - MARGIN

    def _set_mark(self, at: datetime) -> None:
        with suppress(OSError):
            store_folder.make_private_folder(self.mark.parent)
            self.mark.touch(mode=0o600)
            os.utime(self.mark, (at.timestamp(), at.timestamp()))

    async def _send_batch(self) -> bool:
        """Sends a batch of runs; they stay queued unless the receiver took them."""
        batch, is_taken = dict(islice(self._waiting.items(), RUNS_PER_BATCH)), False
        journals = dict[str, tuple[Sequence[Entry], datetime]]()
        for run_id in batch:
            del self._waiting[run_id]
        try:
            for run_id, since in batch.items():
                with suppress(Damaged, NewerVersion):  # its readers learn of it; the newer agent sends it
                    journals[run_id] = await self.store.entries(run_id), since
            is_taken = await in_daemon_thread(partial(self._send_spans, journals), name="traces")
        finally:
            if not is_taken:
                self._add(batch)
        return is_taken

    def _send_spans(self, journals: Mapping[str, tuple[Sequence[Entry], datetime]]) -> bool:
        spans = list[Span]()
        for run_id, (entries, since) in journals.items():
            try:
                with suppress(Damaged):  # its readers learn of it, and the log tells no part of an entry
                    spans += spans_since_rest(entries, since=since, content=self.content)
            except Exception:
                log.exception("spans of a run cannot be made", extra={"run_id": run_id})
        return all(self.send(spans[i : i + SPANS_PER_REQUEST]) for i in range(0, len(spans), SPANS_PER_REQUEST))
