"""The steps of a timeline, their tasks and attempts."""

from typing import Any

from agent_service.core.graph.gathered import task_of
from agent_service.core.tools.attempts import Pending, asker_of
from agent_service.core.tools.flights import flights, gathering_of
from agent_service.core.waiting import Ended
from agent_service.run.moments import Moment
from agent_service.telling.acts import Act, Name, act_of, by_answer, item_of, settled
from agent_service.telling.history.items import ErrorView, Items, ItemStatus
from agent_service.telling.plain import one_line
from agent_service.telling.sayings import OUTCOMES, acted, call_of, cut, request_of, sent_off
from agent_service.telling.tasks import depth_of, ended_by, going_on
from schemas.events import ToolResult

LONGEST_QUERY = 120
_STATUSES: dict[str, ItemStatus] = {"ok": "ok", "continuation": "continuation"}


class Steps:
    def __init__(self, items: Items) -> None:
        self._items = items
        self._newest: dict[tuple[int, str], str] = {}

    def acted(self, moment: Moment) -> None:
        act = act_of(moment)
        if act is None:
            return
        if not act.is_awaited:
            self._unasked(moment, act)
            return
        self._items.close(f"attempt of {item_of(act.name)}", moment, _status(act), **_came(act))
        for name in ended_by(moment, act):
            self._items.close(item_of(name), moment, _status(act), **_came(act))

    def send(self, moment: Moment, sent: Pending) -> None:
        item, depth = item_of(sent.name), depth_of(sent.task)
        facts = _facts(sent.name) | {"tool": sent.action.tool, "command": sent.action.command}
        if item not in self._items:
            self._begin(moment, sent, facts)
        self._items.begin(
            f"attempt of {item}",
            moment,
            f"{item}:attempt:{sent.attempt}",
            kind="attempt",
            title=f"Attempt {sent.attempt}",
            text=sent_off(sent),
            attempt=sent.attempt,
            until=sent.deadline_at,
            parent=item,
            depth=depth + 1,
            **facts,
        )

    def went_on(self, moment: Moment) -> None:
        for item in map(item_of, going_on(moment.after) if moment.reopened else ()):
            self._items.go_on(item, item)
        for sent in (flight.pending for flight in moment.kept if flight.retry_at is None):
            self._items.go_on(f"attempt of {item_of(sent.name)}", f"{item_of(sent.name)}:attempt:{sent.attempt}")
        for act in settled(moment):
            self._settle(moment, act)
        for pending, result in moment.settled_by_answer:
            self._count(moment, pending, result)
        if not moment.ended:
            self._give_up(moment)

    def _begin(self, moment: Moment, sent: Pending, facts: dict[str, Any]) -> None:
        item, call = item_of(sent.name), call_of(sent.action)
        if not sent.task:
            why = moment.after.plan.rationale if moment.after.plan else ""
            self._items.begin(item, moment, item, kind="step", title=f"Step {sent.step}: {call}", text=why, **facts)
            return
        gathering = gathering_of(moment.after.waiting, sent.step)
        task = task_of(gathering, sent.task) if gathering else None
        first = task if task and task.id == sent.task else None
        asked = f" “{one_line(first.query, LONGEST_QUERY)}”" if first and first.query else ""
        self._begin_task(moment, sent.name, f"{sent.task}: {call}{asked}", first.reason if first else "", facts)

    def _begin_task(self, moment: Moment, name: Name, title: str, text: str, facts: dict[str, Any]) -> None:
        step, task, _ = name
        item, parent = item_of(name), self._newest.get((step, asker_of(task)), item_of((step, "", 0)))
        about = facts | {"parent": parent, "depth": depth_of(task)}
        self._items.begin(item, moment, item, kind="task", title=title, text=cut(text), **about)
        self._newest[step, task] = item

    def _settle(self, moment: Moment, act: Act) -> None:
        item = item_of(act.name)
        if act.task and item not in self._items:
            call = call_of(act.action) if act.action else act.tool
            self._begin_task(moment, act.name, f"{act.task}: {call}", "", _facts(act.name) | {"tool": act.tool})
        self._items.go_on(item, item)
        self._items.close(item, moment, _status(act), **_came(act))

    def _count(self, moment: Moment, pending: Pending, result: ToolResult) -> None:
        item = item_of(pending.name)
        what, attempt = f"attempt of {item}", f"{item}:attempt:{pending.attempt}"
        if moment.before and isinstance(moment.before.waiting, Ended) and result in moment.before.waiting.came:
            act = by_answer(pending, result)
            self._items.go_on(what, attempt)
            self._items.close(what, moment, _status(act), **_came(act))

    def _give_up(self, moment: Moment) -> None:
        sent = {flight.pending.name for flight in flights(moment.after.waiting) if flight.retry_at is None}
        still = {*map(item_of, going_on(moment.after)), *(f"attempt of {item_of(name)}" for name in sent)}
        for what in [what for what in self._items.open if what.startswith(("step:", "attempt of "))]:
            if what not in still:
                self._items.close(what, moment, "cancelled")

    def _unasked(self, moment: Moment, act: Act) -> None:
        item = item_of(act.name)
        about = _facts(act.name) | {"parent": item, "depth": depth_of(act.task) + 1} if item in self._items else {}
        self._items.begin(
            "unasked",
            moment,
            f"result:{moment.entry.seq}",
            kind="attempt",
            title=f"Result of {request_of(act.name)} that {OUTCOMES[act.status]}",
            text=cut(acted(act)),
            attempt=act.attempt,
            tool=act.tool,
            error=ErrorView.of(act.error),
            **(_facts(act.name) | about),
        )
        self._items.close("unasked", moment, "refused")


def _facts(name: Name) -> dict[str, Any]:
    step, task, asked_in = name
    return {"step": step, "task": task or None, "round": asked_in or None}


def _status(act: Act) -> ItemStatus:
    return _STATUSES.get(act.status, "error")


def _came(act: Act) -> dict[str, Any]:
    return {"text": cut(acted(act)), "error": ErrorView.of(act.error)}
