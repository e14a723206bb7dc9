"""Steps of a run and their attempts, as spans. Pure.

A step lasts from its first request to its last result, an attempt from its request to its own result, or to the instant
at which none was waited for any more. A run that ends ends what is under way.
"""

from datetime import datetime

from agent_service.core.state import RunState
from agent_service.core.waiting import ForTool, Pending, under_way
from agent_service.moments import Moment
from agent_service.telling.acts import act_of
from agent_service.telling.spans import attributes
from agent_service.telling.spans.attributes import Content
from agent_service.telling.spans.tree import Open, Tree
from schemas import keys, subjects


class Acting:
    """The step of a run that is under way, and its attempt."""

    def __init__(self, tree: Tree, content: Content | None) -> None:
        self._tree = tree
        self._content = content
        self.step: Open | None = None
        self._attempt: Open | None = None

    def sent(self, moment: Moment) -> None:
        """The attempt that leaves for its tool."""
        if pending := moment.sent:
            at = moment.entry.at
            self.step = self.step or self._begun(moment.after, pending, at)
            self._attempt = self._tried(moment.after, pending, at, self.step)

    def answered(self, moment: Moment) -> None:
        """What became of the attempt and the step under way."""
        error = _failure(moment) if self._attempt else None
        if self._attempt and not isinstance(under_way(moment.after.waiting), ForTool):
            self._tree.close(self._attempt, moment.entry.at, error)
            self._attempt = None
        if self.step and moment.after.pending is None:
            self.step.attributes |= attributes.result(moment.after, self._content)
            self._tree.close(self.step, moment.entry.at, error or moment.after.ending_class)
            self.step = None

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


def _failure(moment: Moment) -> str | None:
    """The class of what failed; what the end of its run cut off has that of the end."""
    act = act_of(moment)
    if act and act.status == "ok":
        return None
    if act and act.status in ("error", "continuation"):
        return act.error.error_class if act.error else act.status
    return moment.after.ending_class
