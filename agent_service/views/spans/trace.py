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

Instants are those of the entries. Ids follow from the run and from what a span is; that of an attempt is the one which
the `traceparent` of its request names. Nothing that a model or a tool said is told but names, unless with content.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from agent_service.core.brief import Parent
from agent_service.core.events import WakeAccepted
from agent_service.core.facts import Ended, PersonAsked, Reopened, RequestSent, Slept
from agent_service.core.state import RunState
from agent_service.core.tools.grants import run_id_of
from agent_service.history.history import History
from agent_service.history.items import Item, id_of
from agent_service.run.journal import Entry, Record
from agent_service.run.moments import retell
from agent_service.trust.identity import root_span_id, trace_id
from agent_service.views.spans import attributes
from agent_service.views.spans.attributes import Attributes, Content
from groundwork.telemetry import names
from groundwork.telemetry.span import Context, Kind, Span, context_of, span_id
from schemas import keys

AGENT = "agentic-loop"


def rests(record: Record) -> bool:
    """Whether the run ended, or waits for a person or an instant: then its spans so far are told."""
    return any(isinstance(fact, Ended | PersonAsked | Slept) for fact in record.facts)


def stretch(
    entries: Sequence[Entry], *, since: datetime | None = None, content: Content | None = None
) -> Sequence[Span]:
    """The spans that ended after the last rest before the newest of `entries`, or before `since`; `entries` begin with
    the run's first. Raises Damaged, and ValueError for a journal that cannot be told.
    """
    told, is_told = list[Span](), False
    for record, spans in traced(entries, content):
        if is_told:
            told.clear()
        told += spans
        is_told = rests(record) and (since is None or record.at < since)
    return told


def traced(entries: Sequence[Entry], content: Content | None = None) -> Iterator[tuple[Record, list[Span]]]:
    """Each entry with the spans that end with it."""
    trace: Trace | None = None
    states = {moment.entry.seq: moment.after for moment in retell(entries)} if content else {}
    for record in (entry.record() for entry in entries):
        if isinstance(record.event, WakeAccepted):
            trace = Trace(record, record.event, content, states)
        if trace:
            yield record, trace.take(record)


class Trace:
    """`states`: the run after each entry, for prompts; only needed with content."""

    def __init__(
        self, first: Record, event: WakeAccepted, content: Content | None, states: Mapping[int, RunState]
    ) -> None:
        self._content = content
        self._states = states
        self._run_id = event.run_id
        self._everywhere = attributes.of_run(event)
        self._accepted = event
        self._history = History()
        self._began, self._reopened = first.at, 0
        self._sent: dict[str, RequestSent] = {}

    def take(self, record: Record) -> list[Span]:
        """Those that end with this entry."""
        if record.first(Reopened):
            self._began, self._reopened = record.at, self._reopened + 1
        for sent in record.all(RequestSent):
            self._sent[f"{id_of(sent.pending.name)}:attempt:{sent.pending.attempt}"] = sent
        self._history.hear([record])
        begun = (item for item in self._history.closed() if item.started_at)
        closed = (item for item in begun if not item.again or item.opened_in != record.entry.seq)
        spans = [span for item in closed for span in self._span(record, item)]
        ended = record.first(Ended)
        return [*spans, self._run(record, ended)] if ended else spans

    def _span(self, record: Record, item: Item) -> Iterable[Span]:
        match item.kind:
            case "accepted":
                yield self._of(item, "wait queued", {names.WAITING_FOR: "queued"})
            case "phase" if item.id.count(":") == 2 and not item.id.endswith(":plan"):
                name = f"chat {item.model}" if item.model else "chat"
                state = self._states.get(item.entry)
                about = attributes.call(record, item, state, self._content)
                yield self._of(item, name, about, kind="client")
            case "step" | "task":
                about = attributes.step(self._run_id, record, item, self._content)
                yield self._of(item, f"execute_tool {item.tool}", about)
            case "attempt" if item.id in self._sent:
                yield self._attempt(item)
            case "wait" if item.about["kind"] != "tool_retry":
                yield self._of(item, f"wait {item.about['kind']}", attributes.wait(item))

    def _of(self, item: Item, name: str, about: Attributes, kind: Kind = "internal") -> Span:
        identity = span_id(f"{self._run_id}:{_name(item)}")
        error = item.error.error_class or "error" if item.error and item.status not in ("ok", "continuation") else None
        if item.status == "cancelled" and error is None and item.kind in ("step", "task", "phase"):
            error = "cancelled"
        return self._closed(item, identity, name, about, kind, error)

    def _attempt(self, item: Item) -> Span:
        pending = self._sent[item.id].pending
        key = keys.request(self._run_id, pending.step, pending.attempt, *pending.name[1:])
        links: tuple[Context, ...] = ()
        if pending.grant:
            child = run_id_of(self._run_id, pending)
            links = (Context(trace_id=trace_id(child), span_id=root_span_id(child)),)
        error = item.error.error_class if item.error and item.status != "ok" else None
        name, about = f"attempt {pending.attempt}", attributes.attempt(pending)
        identity = span_id(f"{key}:{item.again}" if item.again else key)
        return self._closed(item, identity, name, about, "internal", error, links)

    def _closed(
        self,
        item: Item,
        identity: str,
        name: str,
        about: Attributes,
        kind: Kind,
        error: str | None,
        links: tuple[Context, ...] = (),
    ) -> Span:
        began, ended = item.opened_at or self._began, item.ended_at or self._began
        parent = self._parent_of(item)
        return self._made(identity, parent, name, kind, began, ended, about, links, error)

    def _parent_of(self, item: Item) -> str:
        above = self._history.item(item.parent) if item.parent else None
        return span_id(f"{self._run_id}:{_name(above)}") if above else self._root()

    def _root(self) -> str:
        return span_id(f"{self._run_id}:reopened:{self._reopened}") if self._reopened else root_span_id(self._run_id)

    def _run(self, record: Record, ended: Ended) -> Span:
        event = self._accepted
        links = (context_of(event.traceparent), _request_of(event.parent)) if not self._reopened else ()
        about = attributes.run(AGENT, event, self._content) | attributes.ending(ended, self._content)
        error = ended.ending_class if ended.status in ("failed", "escalated") else None
        above = root_span_id(self._run_id) if self._reopened else None
        known = tuple(filter(None, links))
        name = f"invoke_agent {AGENT}"
        return self._made(self._root(), above, name, "internal", self._began, record.at, about, known, error)

    def _made(
        self,
        identity: str,
        parent_id: str | None,
        name: str,
        kind: Kind,
        began: datetime,
        ended: datetime,
        about: Attributes,
        links: tuple[Context, ...],
        error: str | None,
    ) -> Span:
        return Span(
            trace_id=trace_id(self._run_id),
            span_id=identity,
            parent_id=parent_id,
            name=name,
            kind=kind,
            started_at=began,
            ended_at=ended,
            attributes=self._everywhere | about | ({names.ERROR_TYPE: error} if error else {}),
            links=links,
            error=error,
        )


def _name(item: Item) -> str:
    """A run's end cuts spans off, and an answer lets them go on under other ids."""
    return f"{item.id}:{item.again}" if item.again else item.id


def _request_of(parent: Parent | None) -> Context | None:
    if parent is None or not parent.step:
        return None
    key = keys.request(parent.run_id, parent.step, parent.attempt, parent.task, parent.round)
    return Context(trace_id=trace_id(parent.run_id), span_id=span_id(key))
