"""Steps of a run and their attempts, as spans: several at once while reads run side by side. Pure.

A step lasts from its first request to its last result, an attempt from its request to its own result, or to the instant
at which none was waited for any more. A run that ends ends what is under way.
"""

from datetime import datetime

from agent_service.core.flights import flights
from agent_service.core.state import RunState
from agent_service.core.waiting import Pending
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

    def sent(self, moment: Moment) -> None:
        """The attempts that leave for their tools."""
        at = moment.entry.at
        for pending in moment.sent:
            if pending.step not in self.steps:
                self.steps[pending.step] = self._begun(moment.after, pending, at)
            self._attempts[pending.step] = self._tried(moment.after, pending, at, self.steps[pending.step])

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
        step = self._tree.open(f"step:{pending.step}", f"execute_tool {pending.action.tool}", at)
        step.attributes |= attributes.step(run, pending, self._content)
        return step

    def _tried(self, run: RunState, pending: Pending, at: datetime, step: Open) -> Open:
        what = f"step:{pending.step}:attempt:{pending.attempt}"
        attempt = self._tree.open(what, f"attempt {pending.attempt}", at, step)
        attempt.attributes |= attributes.attempt(pending)
        key = keys.request(run.run_id, pending.step, pending.attempt)
        self._tree.publish(subjects.tool_request(pending.route), key, at, attempt)
        return attempt


def _failure(moment: Moment, step: int) -> str | None:
    """The class of what failed of `step`; what the end of its run cut off has that of the end."""
    act = act_of(moment)
    if act is None or act.step != step or act.status not in ("ok", "error", "continuation"):
        return moment.after.ending_class
    if act.status == "ok":
        return None
    return act.error.error_class if act.error else act.status
