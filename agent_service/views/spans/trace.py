"""The trace of a run: each item of its history is a span once it is over. Told twice, it is the same to the byte.

    invoke_agent agentic-loop       the run: from its acceptance to its end
      wait queued
      chat MODEL                    a model call
      execute_tool TOOL             a step, with all of its attempts
        attempt 1                   what its executor tells belongs to it
        attempt 2 …
        execute_tool TOOL           a task of it, and each time that it is asked again
          attempt 1 …
      wait approval, wait question, wait person, wait model_retry, wait time
      invoke_agent agentic-loop     from when an answer opened an escalated run again to its next end

Instants are those of the entries. Ids follow from the run and the item; that of an attempt is the one which the
`traceparent` of its request names. Nothing that a model or a tool said is told but names, unless with content.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from agent_service.core.brief import Parent
from agent_service.core.events import WakeAccepted
from agent_service.core.facts import Ended, PersonAsked, Reopened, Slept
from agent_service.core.state import RunState
from agent_service.history.history import History
from agent_service.history.items import Item
from agent_service.run.journal import Entry, Record
from agent_service.run.moments import retell
from agent_service.trust.identity import root_span_id, trace_id
from agent_service.views.spans import attributes
from agent_service.views.spans.attributes import Attributes, Content
from groundwork.telemetry import names
from groundwork.telemetry.span import Context, Span, context_of, span_id
from schemas import keys

AGENT = "agentic-loop"

States = Mapping[int, RunState]
"""The run after each entry, for prompts; only needed with content."""


def rests(record: Record) -> bool:
    """Whether the run ended, or waits for a person or an instant: then its spans so far are told."""
    return any(isinstance(fact, Ended | PersonAsked | Slept) for fact in record.facts)


def stretch(
    entries: Sequence[Entry], *, since: datetime | None = None, content: Content | None = None
) -> Sequence[Span]:
    """The spans that ended after the last rest before the newest of `entries`, or before `since`; `entries` begin with
    the run's first. Raises Damaged, and ValueError for a journal that cannot be told.
    """
    states = {moment.entry.seq: moment.after for moment in retell(entries)} if content else {}
    trace: Trace | None = None
    told, is_told = list[Span](), False
    for record in (entry.record() for entry in entries):
        if isinstance(record.event, WakeAccepted):
            trace = Trace(record, record.event, content, states)
        if is_told:
            told.clear()
        told += trace.ended(record) if trace else ()
        is_told = rests(record) and (since is None or record.at < since)
    return told


class Trace:
    def __init__(self, first: Record, event: WakeAccepted, content: Content | None, states: States) -> None:
        self._content = content
        self._states = states
        self._accepted = event
        self._run_id = event.run_id
        self._history = History()
        self._began = first.at
        self._reopened = 0

    def ended(self, record: Record) -> Iterator[Span]:
        """The spans that end with this entry."""
        if record.first(Reopened):
            self._began, self._reopened = record.at, self._reopened + 1
        for item in self._history.ends([record]):
            if not (item.again and item.opened_in == record.entry.seq):
                yield from self._of(record, item)
        if end := record.first(Ended):
            yield self._run(record, end)

    def _of(self, record: Record, item: Item) -> Iterator[Span]:
        match item.kind:
            case "accepted":
                yield self._span(item, "wait queued", {names.WAITING_FOR: "queued"})
            case "phase" if not (item.decided and item.decided.along):
                about = attributes.call(record, item, self._states.get(item.entry), self._content)
                yield self._span(item, f"chat {item.model}" if item.model else "chat", about, kind="client")
            case "step" | "task":
                about = attributes.step(self._run_id, record, item, self._content)
                yield self._span(item, f"execute_tool {item.tool}", about)
            case "attempt" if ":attempt:" in item.id:
                child = item.about.get("child_run_id")
                links = (Context(trace_id=trace_id(child), span_id=root_span_id(child)),) if child else ()
                yield self._span(item, f"attempt {item.attempt}", attributes.attempt(item), links=links)
            case "wait" if item.about["kind"] != "tool_retry":
                yield self._span(item, f"wait {item.about['kind']}", attributes.wait(item))

    def _span(self, item: Item, name: str, about: Attributes, **told: Any) -> Span:
        above = self._history.item(item.parent or "")
        return self._made(
            span_id(self._key(item)),
            span_id(self._key(above)) if above else self._root(),
            name,
            (item.opened_at or self._began, item.ended_at or self._began),
            about,
            _error(item),
            **told,
        )

    def _key(self, item: Item) -> str:
        """An end cuts items off, and an answer lets them go on under other ids."""
        key = f"{self._run_id}:{item.id}"
        if item.kind == "attempt":
            key = keys.request(self._run_id, item.step or 0, item.attempt or 0, *item.name[1:])
        return f"{key}:{item.again}" if item.again else key

    def _root(self) -> str:
        return span_id(f"{self._run_id}:reopened:{self._reopened}") if self._reopened else root_span_id(self._run_id)

    def _run(self, record: Record, end: Ended) -> Span:
        event, again = self._accepted, self._reopened > 0
        return self._made(
            self._root(),
            root_span_id(self._run_id) if again else None,
            f"invoke_agent {AGENT}",
            (self._began, record.at),
            attributes.run(AGENT, event, end, self._content),
            end.ending_class if end.status in ("failed", "escalated") else None,
            links=()
            if again
            else tuple(filter(None, (context_of(event.traceparent), _request_of(event.brief.parent)))),
        )

    def _made(
        self,
        identity: str,
        above: str | None,
        name: str,
        times: tuple[datetime, datetime],
        about: Attributes,
        error: str | None,
        **told: Any,
    ) -> Span:
        everywhere = attributes.everywhere(self._accepted) | about | ({names.ERROR_TYPE: error} if error else {})
        return Span(
            trace_id=trace_id(self._run_id),
            span_id=identity,
            parent_id=above,
            name=name,
            started_at=times[0],
            ended_at=times[1],
            attributes=everywhere,
            error=error,
            **told,
        )


def _error(item: Item) -> str | None:
    if item.error and item.status not in ("ok", "continuation"):
        return item.error.error_class or "error"
    return "cancelled" if item.status == "cancelled" and item.kind in ("step", "task", "phase") else None


def _request_of(parent: Parent | None) -> Context | None:
    if parent is None or not parent.step:
        return None
    key = keys.request(parent.run_id, parent.step, parent.attempt, parent.task, parent.round)
    return Context(trace_id=trace_id(parent.run_id), span_id=span_id(key))
