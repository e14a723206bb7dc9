"""Steps of a run and their attempts, as spans: several at once while reads run side by side. Pure.

A step lasts from its first request to its last result, an attempt from its request to its own result, or to the instant
at which none was waited for any more. A run that ends ends what is under way.
"""

from datetime import datetime

from agent_service.core.attempts import Pending
from agent_service.core.flights import flights
from agent_service.core.state import RunState
from agent_service.moments import Moment
from agent_service.telling.acts import act_of
from agent_service.telling.spans import attributes
from agent_service.telling.spans.attributes import Content
from agent_service.telling.spans.tree import Open, Tree
from schemas import keys, subjects


class Acting:
    """The steps of a run that are under way, and their attempts, by the numbers of the steps."""

    def __init__(self, tree: Tree, content: Content | None) -> None:
        self._tree = tree
        self._content = content
        self.steps: dict[int, Open] = {}
        self._attempts: dict[int, Open] = {}
        self._told: set[str] = set()
        """What has a span already: the end of a run cuts spans off, and an answer lets what they are of go on."""

    def sent(self, moment: Moment) -> None:
        """The attempts that leave for their tools, and those that go on since the run was opened again."""
        for pending in (*moment.sent, *(flight.pending for flight in moment.kept)):
            if pending.step not in self.steps:
                self.steps[pending.step] = self._begun(moment.after, pending, moment.entry.at)
        for pending in moment.sent:
            attempt = self._tried(moment, pending)
            key = keys.request(moment.after.run_id, pending.step, pending.attempt)
            self._tree.publish(subjects.tool_request(pending.route), key, moment.entry.at, attempt)
        for flight in moment.kept:
            if flight.retry_at is None:
                self._tried(moment, flight.pending)

    def answered(self, moment: Moment) -> None:
        """What became of the attempts and the steps under way."""
        open_now = flights(moment.after.waiting)
        sent = {flight.pending.step for flight in open_now if flight.retry_at is None}
        failed = {step: _failure(moment, step) for step in self._attempts}
        for number in sorted(self._attempts.keys() - sent):
            self._tree.close(self._attempts.pop(number), moment.entry.at, failed[number])
        for number in sorted(self.steps.keys() - {flight.pending.step for flight in open_now}):
            step = self.steps.pop(number)
            step.attributes |= attributes.result(moment.after, number, self._content)
            self._tree.close(step, moment.entry.at, failed.get(number) or moment.after.ending_class)

    def _begun(self, run: RunState, pending: Pending, at: datetime) -> Open:
        what = self._name(f"step:{pending.step}", run)
        step = self._tree.open(what, f"execute_tool {pending.action.tool}", at)
        step.attributes |= attributes.step(run, pending, self._content)
        return step

    def _tried(self, moment: Moment, pending: Pending) -> Open:
        what = self._name(f"step:{pending.step}:attempt:{pending.attempt}", moment.after)
        attempt = self._tree.open(what, f"attempt {pending.attempt}", moment.entry.at, self.steps[pending.step])
        attempt.attributes |= attributes.attempt(pending)
        self._attempts[pending.step] = attempt
        return attempt

    def _name(self, what: str, run: RunState) -> str:
        """Said once in a run."""
        name = f"{what}:{run.reopened}" if what in self._told else what
        self._told.add(what)
        return name


def _failure(moment: Moment, step: int) -> str | None:
    """The class of what failed of `step`; what the end of its run cut off has that of the end."""
    act = act_of(moment)
    if act is None or act.step != step or act.status not in ("ok", "error", "continuation"):
        return moment.after.ending_class
    if act.status == "ok":
        return None
    return act.error.error_class if act.error else act.status
