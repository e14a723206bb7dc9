"""Steps, tasks and attempts of a run as spans."""

from datetime import datetime

from agent_service.core.graph.children import is_child, run_id_of
from agent_service.core.state import RunState
from agent_service.core.tools.attempts import Pending, asker_of
from agent_service.core.tools.flights import flights, gatherings
from agent_service.run.moments import Moment
from agent_service.telling.acts import Act, Name, act_of, item_of, settled
from agent_service.telling.spans import attributes
from agent_service.telling.spans.attributes import Content
from agent_service.telling.spans.tree import Open, Tree
from agent_service.telling.tasks import depth_of, ended_by, going_on
from agent_service.trust.identity import root_span_id, trace_id
from groundwork.telemetry.span import Context
from schemas import keys, subjects


class Acting:
    def __init__(self, tree: Tree, content: Content | None) -> None:
        self._tree = tree
        self._content = content
        self.requests: dict[Name, Open] = {}
        self._attempts: dict[Name, Open] = {}
        self._told: set[str] = set()
        """A run's end cuts spans off, and an answer lets them go on: these have one already."""

    def sent(self, moment: Moment) -> None:
        asking = (gathering.first for gathering in gatherings(moment.after.waiting))
        for pending in (*asking, *moment.sent, *(flight.pending for flight in moment.kept)):
            if pending.name not in self.requests:
                self.requests[pending.name] = self._begun(moment.after, pending, moment.entry.at)
        for pending in moment.sent:
            attempt = self._tried(moment, pending)
            key = keys.request(moment.after.run_id, pending.step, pending.attempt, *pending.name[1:])
            self._tree.publish(subjects.tool_request(pending.route), key, moment.entry.at, attempt)
        for flight in moment.kept:
            if flight.retry_at is None:
                self._tried(moment, flight.pending)

    def answered(self, moment: Moment) -> None:
        came, still = _came(moment), going_on(moment.after)
        sent = {flight.pending.name for flight in flights(moment.after.waiting) if flight.retry_at is None}
        for name in [name for name in self._attempts if name not in sent]:
            self._tree.close(self._attempts.pop(name), moment.entry.at, _failure(moment, came.get(name)))
        over = sorted(self.requests.keys() - still, key=lambda name: (-depth_of(name[1]), name))
        for name in over:
            request = self.requests.pop(name)
            if not name[1]:
                request.attributes |= attributes.result(moment.after, name[0], self._content)
            self._tree.close(request, moment.entry.at, _failure(moment, came.get(name)) or moment.after.ending_class)

    def _begun(self, run: RunState, pending: Pending, at: datetime) -> Open:
        what, above = self._name(item_of(pending.name), run), self._asker(pending) if pending.task else None
        request = self._tree.open(what, f"execute_tool {pending.action.tool}", at, above)
        request.attributes |= attributes.step(run, pending, self._content)
        return request

    def _asker(self, pending: Pending) -> Open | None:
        step, asker = pending.step, asker_of(pending.task)
        asking = (span for (of, task, _), span in self.requests.items() if (of, task) == (step, asker))
        return next(asking, self.requests.get((step, "", 0)))

    def _tried(self, moment: Moment, pending: Pending) -> Open:
        what = self._name(f"{item_of(pending.name)}:attempt:{pending.attempt}", moment.after)
        attempt = self._tree.open(what, f"attempt {pending.attempt}", moment.entry.at, self.requests[pending.name])
        attempt.attributes |= attributes.attempt(pending)
        attempt.links = _child(moment.after.run_id, pending)
        self._attempts[pending.name] = attempt
        return attempt

    def _name(self, what: str, run: RunState) -> str:
        name = f"{what}:{run.reopened}" if what in self._told else what
        self._told.add(what)
        return name


def _child(run_id: str, pending: Pending) -> tuple[Context, ...]:
    if not is_child(pending):
        return ()
    child = run_id_of(run_id, pending)
    return (Context(trace_id=trace_id(child), span_id=root_span_id(child)),)


def _came(moment: Moment) -> dict[Name, Act]:
    act = act_of(moment)
    over = dict.fromkeys((act.name, *ended_by(moment, act)), act) if act and act.is_awaited else {}
    return over | {one.name: one for one in settled(moment)}


def _failure(moment: Moment, act: Act | None) -> str | None:
    if act is None:
        return moment.after.ending_class
    return None if act.status in ("ok", "continuation") else act.error.error_class if act.error else act.status
