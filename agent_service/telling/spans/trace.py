"""The trace of a run: its timeline as spans. Pure: told twice, it is the same to the byte.

    invoke_agent agentic-loop       the run: from its acceptance to its end
      wait queued
      chat MODEL                    a model call
      execute_tool TOOL             a step, with all of its attempts
        attempt 1                   what its executor tells belongs to it
        wait tool_retry
        attempt 2 …
        execute_tool TOOL           a task of it, and each time that it is asked again
          attempt 1 …
      wait approval, wait question, wait person, wait model_retry, wait budget, wait time
      invoke_agent agentic-loop     from when an answer opened an escalated run again to its next end

Instants are those of the entries. Ids follow from the run and from what a span is; that of an attempt is the one which
the `traceparent` of its request names. A span is told when it is over. Nothing that a model or a tool said is told but
names, unless with content.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from agent_service.core.brief import Parent
from agent_service.core.events import ModelReplied, WakeAccepted
from agent_service.core.state import RunState
from agent_service.core.waiting import Status
from agent_service.run.journal import Entry
from agent_service.run.lines import waits_for
from agent_service.run.moments import Moment, retell
from agent_service.telling.history.items import TimelineItem
from agent_service.telling.history.timeline import Timeline
from agent_service.telling.rulings import Ruling, rulings
from agent_service.telling.spans import attributes
from agent_service.telling.spans.attributes import Attributes, Content
from agent_service.telling.tasks import child_of
from agent_service.trust.identity import root_span_id, trace_id
from groundwork.telemetry import names
from groundwork.telemetry.span import Context, Span, context_of, span_id
from schemas import keys

AGENT = "agentic-loop"


def rests(moment: Moment) -> bool:
    """Whether the run ended, or waits for a person or an instant: then its spans so far are told."""
    return moment.ended or moment.paused or moment.waits is not None


def stretch(
    entries: Iterable[Entry], *, since: datetime | None = None, content: Content | None = None
) -> Sequence[Span]:
    """The spans that ended after the last rest before the newest of `entries`, or before `since`; `entries` begin with
    the run's first. Raises Damaged, and ValueError for a journal that cannot be told.
    """
    trace, told, moments = Trace(content), list[Span](), list(retell(entries))
    for moment in moments:
        trace.hear(moment)
        if rests(moment) or moment is moments[-1]:
            told += trace.over()
        if moment is not moments[-1] and rests(moment) and (since is None or moment.entry.at < since):
            told.clear()
    return told


class Trace:
    def __init__(self, content: Content | None) -> None:
        self._content = content
        self._timeline = Timeline()
        self._moments: list[Moment] = []
        self._began: list[datetime] = []
        """When the run was accepted, and opened again each time."""
        self._replies: dict[int, tuple[ModelReplied, Sequence[Ruling]]] = {}
        self._results: dict[int, Attributes] = {}
        self._told: dict[str, datetime] = {}

    def hear(self, moment: Moment) -> None:
        self._timeline.hear([moment])
        self._moments.append(moment)
        if moment.before is None or moment.reopened:
            self._began.append(moment.entry.at)
        if isinstance(moment.event, ModelReplied):
            self._replies[moment.event.call] = moment.event, rulings(moment)
        for record in moment.finished:
            self._results[record.step] = attributes.result(moment.after, record.step, self._content)

    def over(self) -> list[Span]:
        """Those that ended since they were asked for last."""
        run = self._moments[-1].after
        items = {item.id: item for item in self._timeline.view(run.run_id).items}
        over = [(item, at) for item in items.values() if (at := item.ended_at) and self._told.get(item.id) != at]
        self._told |= {item.id: at for item, at in over}
        return [span for item, at in over if (span := self._span(item, at, items.get(item.parent or "")))]

    def _span(self, item: TimelineItem, at: datetime, parent: TimelineItem | None) -> Span | None:
        name, about = self._described(item)
        if not name:
            return None
        run, error = self._moments[-1].after, _error(item, self._moments[-1].after)
        return Span(
            trace_id=trace_id(run.run_id),
            span_id=self._id(item),
            parent_id=self._id(parent) if parent else self._parent_id(item),
            name=name,
            kind="client" if item.kind == "phase" else "internal",
            started_at=self._began[-1] if item.kind == "ending" else max(item.started_at, self._began[-1]),
            ended_at=at,
            attributes=attributes.of_run(run) | about | ({names.ERROR_TYPE: error} if error else {}),
            links=self._links(item),
            error=error,
        )

    def _described(self, item: TimelineItem) -> tuple[str, Attributes]:
        """The span's name and attributes; no name for what is none."""
        run = self._moments[item.entry - 1].after
        match item.kind:
            case "ending":
                return f"invoke_agent {AGENT}", attributes.run(AGENT, run, self._content)
            case "accepted":
                return "wait queued", attributes.wait("queued", run)
            case "wait":
                kind = "tool_retry" if item.attempt else _wait_of(run)
                return f"wait {kind}", attributes.wait(kind, run)
            case "phase" if run.asking:
                about = attributes.call(run, run.asking, item, self._content)
                if item.tokens and item.call:
                    about |= attributes.replied(*self._replies[item.call], self._content)
                return f"chat {item.model or ''}".rstrip(), about
            case "step" | "task":
                sent = next((one for one in self._moments[item.entry - 1].sent if one.name == _name(item)), None)
                about = attributes.step(run.run_id, item, sent.action.arguments if sent else {}, self._content)
                return f"execute_tool {item.tool}", about | ({} if item.task else self._results.get(item.step or 0, {}))
            case "attempt" if item.until:
                return f"attempt {item.attempt}", attributes.attempt(item)
        return "", {}

    def _id(self, item: TimelineItem) -> str:
        """A run's end cuts off what is open, and an answer lets it go on: as another span."""
        run, now = self._moments[item.entry - 1].after, self._moments[-1].after.reopened
        if item.kind == "ending":
            return self._id_of_run(now)
        of_request = item.kind == "attempt" and item.attempt
        what = _request_key(run.run_id, item) if of_request else f"{run.run_id}:{item.id}"
        return span_id(what if run.reopened == now else f"{what}:{now}")

    def _parent_id(self, item: TimelineItem) -> str | None:
        now = self._moments[-1].after.reopened
        if item.kind == "ending":
            return self._id_of_run(0) if now else None
        return self._id_of_run(now)

    def _id_of_run(self, reopened: int) -> str:
        run_id = self._moments[0].after.run_id
        return span_id(f"{run_id}:reopened:{reopened}") if reopened else root_span_id(run_id)

    def _links(self, item: TimelineItem) -> tuple[Context, ...]:
        run, accepted = self._moments[item.entry - 1].after, self._moments[0].event
        if item.kind == "ending" and isinstance(accepted, WakeAccepted) and not run.reopened:
            return tuple(filter(None, (context_of(accepted.traceparent), _request_of(accepted.parent))))
        child = child_of(run, _name(item)) if item.kind == "attempt" else None
        return (Context(trace_id=trace_id(child), span_id=root_span_id(child)),) if child else ()


def _name(item: TimelineItem) -> tuple[int, str, int]:
    return item.step or 0, item.task or "", item.round or 0


def _request_key(run_id: str, item: TimelineItem) -> str:
    step, task, asked_in = _name(item)
    return keys.request(run_id, step, item.attempt or 0, task, asked_in)


def _error(item: TimelineItem, run: RunState) -> str | None:
    if item.kind in ("accepted", "wait"):
        return None
    cut_off = (run.ending_class or "cancelled") if item.status == "cancelled" and item.kind != "ending" else None
    return item.error.error_class if item.error else cut_off


def _wait_of(run: RunState) -> str:
    """What holds the run up while neither a model nor a tool is at work."""
    reason = waits_for(run.waiting, updated_at=run.updated_at, due_at=run.due_at)
    if run.status is Status.PAUSED:
        return reason.kind if reason and reason.kind in ("approval", "question") else "person"
    return reason.kind if reason else ""


def _request_of(parent: Parent | None) -> Context | None:
    if parent is None or not parent.step:
        return None
    key = keys.request(parent.run_id, parent.step, parent.attempt, parent.task, parent.round)
    return Context(trace_id=trace_id(parent.run_id), span_id=span_id(key))
