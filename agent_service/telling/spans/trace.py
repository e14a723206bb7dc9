"""The trace of a run as its journal tells it. Pure: told twice, it is the same to the byte.

    start_run                          short, with a link to what asked for the run, its parent too
      publish agentic.start
      wait queued
      invoke_agent agentic-loop        a turn: from what came in until the run rests
        frame, plan, reflect, verify …  a phase
          chat MODEL                   its call; one that a crash lost is there too
        publish agent.escalated        of a pause
      execute_tool TOOL                a step, with all of its attempts
        attempt 1
          publish agentic.tool_request.ROUTE
        wait tool_retry
        attempt 2 …
        execute_tool TOOL              a task of it, and each time that it is asked again
          attempt 1 …
      wait person, wait model_retry
      finish_run
        publish agent.completed …

Instants are those of the entries, ids follow from the run and from what a span is, and that of a publish is the one
which the message's `traceparent` names. Nothing that a model or a tool said is told but names, unless with content.
"""

from collections.abc import Container, Iterable, Iterator
from datetime import datetime

from agent_service.core import waiting as states
from agent_service.core.brief import Parent
from agent_service.core.events import WakeAccepted
from agent_service.core.people import petition
from agent_service.core.state import RunState
from agent_service.core.tools.attempts import Flight
from agent_service.run.moments import Moment
from agent_service.telling.spans import attributes
from agent_service.telling.spans.acting import Acting
from agent_service.telling.spans.attributes import Content
from agent_service.telling.spans.thinking import OF_THE_MODEL, Thinking
from agent_service.telling.spans.tree import Open, Tree
from agent_service.trust.identity import trace_id
from groundwork.telemetry.span import Context, Event, Span, context_of, span_id
from schemas import keys, subjects

AGENT = "agentic-loop"


def spans(
    moments: Iterable[Moment], *, after: int = 0, of: Container[int] | None = None, content: Content | None = None
) -> Iterator[Span]:
    """The spans that entries `seq` > `after` (or those in `of`) add; `moments` begin with the run's first. Spans told
    up to an entry are a whole tree.
    """
    trace: Trace | None = None
    for moment in moments:
        trace = trace or Trace(moment, content)
        added = trace.take(moment)
        if moment.entry.seq > after and (of is None or moment.entry.seq in of):
            yield from added


class Trace:
    def __init__(self, first: Moment, content: Content | None) -> None:
        self._content = content
        self._tree = Tree(first.after.run_id, first.entry.at, attributes.of_run(first.after))
        self._thinking = Thinking(self._tree, content)
        self._acting = Acting(self._tree, content)
        self._turn: Open | None = None
        self._wait: Open | None = None

    def take(self, moment: Moment) -> list[Span]:
        if isinstance(moment.event, WakeAccepted):
            self._accepted(moment, moment.event)
        else:
            self._went_on(moment)
        return self._tree.taken()

    def _accepted(self, moment: Moment, event: WakeAccepted) -> None:
        root, caller = self._tree.root, context_of(event.traceparent)
        root.attributes |= attributes.accepted(event, self._content)
        root.links = tuple(filter(None, (caller, _request_of(event.parent))))
        self._tree.close(root, event.at)
        if event.announce:
            self._tree.publish(subjects.START, keys.start(event.wake_id), event.at, root)
        self._waited(moment)

    def _went_on(self, moment: Moment) -> None:
        turn = self._begin_turn(moment)
        if moment.reopened:
            key = keys.reopened(moment.after.run_id, moment.entry.seq)
            self._tree.publish(subjects.REOPENED, key, moment.entry.at, turn)
        self._thinking.answered(moment, self._turn)
        self._waited(moment)
        self._acting.answered(moment)
        self._thinking.asked(moment, self._turn)
        self._acting.sent(moment)
        self._stopped(moment)
        self._rest(moment)

    def _begin_turn(self, moment: Moment) -> Open:
        at, came = moment.entry.at, moment.entry.kind
        if self._turn is None:
            self._turn = self._tree.open(f"{moment.entry.seq}:turn", f"invoke_agent {AGENT}", at)
            self._turn.attributes |= attributes.turn(AGENT, moment.after, came)
        elif not isinstance(moment.event, OF_THE_MODEL):
            self._turn.events.append(Event(name=came, at=at))
        return self._turn

    def _rest(self, moment: Moment) -> None:
        if self._turn and not moment.after.calling:
            self._tree.close(self._turn, moment.entry.at, _failure(moment))
            self._turn = None

    def _waited(self, moment: Moment) -> None:
        before, kind = _kind_of_wait(moment.before) if moment.before else "", _kind_of_wait(moment.after)
        if before == kind and not moment.put_off and not (moment.ended or moment.paused):
            return
        if self._wait:
            self._tree.close(self._wait, moment.entry.at)
            self._wait = None
        if kind:
            pending = moment.after.pending
            above = self._acting.requests.get(pending.name) if pending and kind == "tool_retry" else None
            self._wait = self._tree.open(f"{moment.entry.seq}:wait", f"wait {kind}", moment.entry.at, above)
            self._wait.attributes |= attributes.wait(kind, moment.after)

    def _stopped(self, moment: Moment) -> None:
        if moment.ended:
            run, at = moment.after, moment.entry.at
            finish = self._tree.open(f"finish:{run.reopened}" if run.reopened else "finish", "finish_run", at)
            finish.attributes |= attributes.ending(run, self._content)
            self._say(moment, finish)
            self._tree.close(finish, at, _failure(moment))
        elif moment.paused:
            self._say(moment, self._turn or self._tree.root)

    def _say(self, moment: Moment, above: Open) -> None:
        if moment.after.stop:
            self._tree.publish(*attributes.said(moment.after), moment.entry.at, above)
        for asked in petition.said(moment.after):
            self._tree.publish(asked.subject, asked.key, moment.entry.at, above)


def _request_of(parent: Parent | None) -> Context | None:
    if parent is None or not parent.step:
        return None
    key = keys.request(parent.run_id, parent.step, parent.attempt, parent.task, parent.round)
    return Context(trace_id=trace_id(parent.run_id), span_id=span_id(key))


def _kind_of_wait(run: RunState) -> str:
    match run.waiting:
        case states.Queued():
            return "queued"
        case states.Thinking(retry_at=datetime()):
            return "model_retry"
        case states.Acting(flights=(Flight(retry_at=datetime()),), gatherings=()):
            return "tool_retry"
        case states.Sleeping():
            return "time"
        case states.NeedsPerson(ask=ask):
            return "person" if isinstance(ask, states.Stop) else ask.kind
    return ""


def _failure(moment: Moment) -> str | None:
    return moment.after.ending_class if moment.ended and attributes.is_failure(moment.after) else None
