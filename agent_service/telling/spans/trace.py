"""The trace of a run as its journal tells it. Pure: told twice, it is the same to the byte.

    invoke_agent agentic-loop       the run: from its acceptance to its end
      wait queued
      chat MODEL                    a model call; one that a crash lost is there too
      execute_tool TOOL             a step, with all of its attempts
        attempt 1                   what its executor tells belongs to it
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
from dataclasses import dataclass
from datetime import datetime

from agent_service.core.brief import Parent
from agent_service.core.events import CallReserved, ModelReplied, ModelUnavailable, WakeAccepted
from agent_service.core.graph.grants import run_id_of
from agent_service.core.state import RunState
from agent_service.core.tools.attempts import Pending, asker_of
from agent_service.core.tools.flights import flights, gatherings
from agent_service.core.waiting import Asking, Status
from agent_service.run.journal import Entry
from agent_service.run.lines import waits_for
from agent_service.run.moments import Moment, retell
from agent_service.telling.acts import Act, Name, act_of, item_of, settled
from agent_service.telling.rulings import rulings
from agent_service.telling.spans import attributes
from agent_service.telling.spans.attributes import Attributes, Content
from agent_service.telling.tasks import depth_of, ended_by, going_on
from agent_service.trust.identity import root_span_id, trace_id
from groundwork.telemetry import names
from groundwork.telemetry.span import Context, Span, context_of, span_id
from schemas import keys

AGENT = "agentic-loop"
LOST = "lost"
"""The class of a call whose process died."""
WAITS = frozenset({"model_retry", "budget", "time"})


def rests(moment: Moment) -> bool:
    """Whether the run ended, or waits for a person or an instant: then its spans so far are told."""
    return moment.ended or moment.paused or moment.waits is not None


def stretch(
    entries: Iterable[Entry], *, since: datetime | None = None, content: Content | None = None
) -> Sequence[Span]:
    """The spans that ended after the last rest before the newest of `entries`, or before `since`; `entries` begin with
    the run's first. Raises Damaged, and ValueError for a journal that cannot be told.
    """
    trace, told, is_told = None, list[Span](), False
    for moment in retell(entries):
        if is_told:
            told.clear()
        trace = trace or Trace(moment, content)
        told += trace.take(moment)
        is_told = rests(moment) and (since is None or moment.entry.at < since)
    return told


@dataclass(slots=True, kw_only=True)
class Open:
    """A span that is not over."""

    id: str
    name: str
    at: datetime
    parent_id: str | None
    attributes: Attributes
    links: tuple[Context, ...] = ()


class Trace:
    def __init__(self, first: Moment, content: Content | None) -> None:
        self._content = content
        self._run_id = first.after.run_id
        self._everywhere = attributes.of_run(first.after)
        self._out: list[Span] = []
        self._used: set[str] = set()
        """A run's end cuts spans off, and an answer lets them go on under other ids."""
        self._run: Open | None = None
        self._wait: Open | None = None
        self._call: Open | None = None
        self._asking: Asking | None = None
        self._requests: dict[Name, Open] = {}
        self._attempts: dict[Name, Open] = {}

    def take(self, moment: Moment) -> list[Span]:
        """Those that end with this entry."""
        self._out = []
        self._began(moment)
        self._thought(moment)
        self._waited(moment)
        self._answered(moment)
        self._asked(moment)
        self._sent(moment)
        self._ended(moment)
        return self._out

    def _began(self, moment: Moment) -> None:
        run, event, root = moment.after, moment.event, root_span_id(self._run_id)
        if not isinstance(event, WakeAccepted) and not moment.reopened:
            return
        identity = self._id(f"reopened:{run.reopened}") if moment.reopened else root
        about = attributes.run(AGENT, run, self._content)
        self._run = self._open(identity, f"invoke_agent {AGENT}", moment.entry.at, None, about)
        if isinstance(event, WakeAccepted):
            self._run.links = tuple(filter(None, (context_of(event.traceparent), _request_of(event.parent))))
        else:
            self._run.parent_id = root

    def _ended(self, moment: Moment) -> None:
        if moment.ended and self._run:
            run = moment.after
            self._run.attributes |= attributes.ending(run, self._content)
            failed = run.status in (Status.FAILED, Status.ESCALATED)
            self._close(self._run, moment.entry.at, run.ending_class if failed else None)

    # model calls

    def _asked(self, moment: Moment) -> None:
        if moment.asked:
            self._call = self._called(moment, moment.asked)

    def _thought(self, moment: Moment) -> None:
        asking = moment.before.asking if moment.before else None
        match moment.event:
            case CallReserved(model=model) if asking and moment.after.reserve:
                if self._call and names.REQUEST_MODEL in self._call.attributes:
                    self._end_call(moment, LOST)
                self._call = self._call or self._called(moment, asking)
                self._by(self._call, model)
            case ModelReplied() as reply if asking:
                self._call = self._call or self._called(moment, asking)
                self._by(self._call, reply.model)
                self._call.attributes |= attributes.replied(reply, self._content)
                first, *along = rulings(moment)
                self._call.attributes |= attributes.ruled(first, *along)
                self._end_call(moment, first.error_class)
            case ModelUnavailable(error_class=why) if asking:
                self._call = self._call or self._called(moment, asking)
                self._end_call(moment, why)
            case _ if moment.after.calling != self._asking:
                self._end_call(moment, moment.after.ending_class)

    def _called(self, moment: Moment, asking: Asking) -> Open:
        self._asking, at = asking, moment.entry.at
        about = attributes.call(moment.after, asking, at, self._content)
        return self._open(self._id(f"{moment.entry.seq}:chat"), "chat", at, self._run, about)

    def _by(self, call: Open, model: str) -> None:
        call.name = f"chat {model}"
        call.attributes[names.REQUEST_MODEL] = model

    def _end_call(self, moment: Moment, error: str | None) -> None:
        if self._call:
            self._close(self._call, moment.entry.at, error)
        self._call = self._asking = None

    # waits

    def _waited(self, moment: Moment) -> None:
        kind = _wait_of(moment.after)
        if self._wait and (kind != self._wait.attributes[names.WAITING_FOR] or moment.paused):
            self._close(self._wait, moment.entry.at, None)
            self._wait = None
        if kind and self._wait is None:
            identity, about = self._id(f"{moment.entry.seq}:wait"), attributes.wait(kind, moment.after)
            self._wait = self._open(identity, f"wait {kind}", moment.entry.at, self._run, about)

    # steps, tasks and attempts

    def _sent(self, moment: Moment) -> None:
        asking = (gathering.first for gathering in gatherings(moment.after.waiting))
        for pending in (*asking, *moment.sent, *(flight.pending for flight in moment.kept)):
            if pending.name not in self._requests:
                self._requests[pending.name] = self._begun(moment.after, pending, moment.entry.at)
        waiting = (flight.pending for flight in moment.kept if flight.retry_at is None)
        for pending in (*moment.sent, *waiting):
            self._attempts[pending.name] = self._tried(moment, pending)

    def _answered(self, moment: Moment) -> None:
        came, still = _came(moment), going_on(moment.after)
        sent = {flight.pending.name for flight in flights(moment.after.waiting) if flight.retry_at is None}
        for name in [name for name in self._attempts if name not in sent]:
            self._close(self._attempts.pop(name), moment.entry.at, _failure(moment, came.get(name)))
        for name in sorted(self._requests.keys() - still, key=lambda name: (-depth_of(name[1]), name)):
            request = self._requests.pop(name)
            if not name[1]:
                request.attributes |= attributes.result(moment.after, name[0], self._content)
            self._close(request, moment.entry.at, _failure(moment, came.get(name)) or moment.after.ending_class)

    def _begun(self, run: RunState, pending: Pending, at: datetime) -> Open:
        above = self._asker(pending) if pending.task else self._run
        identity = self._id(self._unused(item_of(pending.name), run))
        about = attributes.step(run, pending, self._content)
        return self._open(identity, f"execute_tool {pending.action.tool}", at, above, about)

    def _asker(self, pending: Pending) -> Open | None:
        step, asker = pending.step, asker_of(pending.task)
        asking = (span for (of, task, _), span in self._requests.items() if (of, task) == (step, asker))
        return next(asking, self._requests.get((step, "", 0)))

    def _tried(self, moment: Moment, pending: Pending) -> Open:
        key = keys.request(self._run_id, pending.step, pending.attempt, *pending.name[1:])
        identity = span_id(self._unused(key, moment.after))
        above, about = self._requests[pending.name], attributes.attempt(pending)
        attempt = self._open(identity, f"attempt {pending.attempt}", moment.entry.at, above, about)
        if pending.grant:
            child = run_id_of(self._run_id, pending)
            attempt.links = (Context(trace_id=trace_id(child), span_id=root_span_id(child)),)
        return attempt

    # spans

    def _open(self, identity: str, name: str, at: datetime, above: Open | None, about: Attributes) -> Open:
        parent_id = above.id if above else None
        return Open(id=identity, name=name, at=at, parent_id=parent_id, attributes=self._everywhere | about)

    def _close(self, span: Open, at: datetime, error: str | None) -> None:
        closed = Span(
            trace_id=trace_id(self._run_id),
            span_id=span.id,
            parent_id=span.parent_id,
            name=span.name,
            kind="client" if span is self._call else "internal",
            started_at=span.at,
            ended_at=at,
            attributes=span.attributes | ({names.ERROR_TYPE: error} if error else {}),
            links=span.links,
            error=error or None,
        )
        self._out.append(closed)

    def _id(self, what: str) -> str:
        """`what` is unique in a run."""
        return span_id(f"{self._run_id}:{what}")

    def _unused(self, what: str, run: RunState) -> str:
        name = f"{what}:{run.reopened}" if what in self._used else what
        self._used.add(what)
        return name


def _wait_of(run: RunState) -> str | None:
    """A word for what holds the run up while neither a model nor a tool is at work."""
    if run.status is Status.QUEUED:
        return "queued"
    reason = waits_for(run.waiting, updated_at=run.updated_at, due_at=run.due_at)
    if run.status is Status.PAUSED:
        return reason.kind if reason and reason.kind in ("approval", "question") else "person"
    return reason.kind if reason and reason.kind in WAITS else None


def _request_of(parent: Parent | None) -> Context | None:
    if parent is None or not parent.step:
        return None
    key = keys.request(parent.run_id, parent.step, parent.attempt, parent.task, parent.round)
    return Context(trace_id=trace_id(parent.run_id), span_id=span_id(key))


def _came(moment: Moment) -> dict[Name, Act]:
    act = act_of(moment)
    over = dict.fromkeys((act.name, *ended_by(moment, act)), act) if act and act.is_awaited else {}
    return over | {one.name: one for one in settled(moment)}


def _failure(moment: Moment, act: Act | None) -> str | None:
    if act is None:
        return moment.after.ending_class
    return None if act.status in ("ok", "continuation") else act.error.error_class if act.error else act.status
