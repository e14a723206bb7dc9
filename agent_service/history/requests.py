"""Steps, their tasks and attempts, as items of a history."""

from collections.abc import Callable
from typing import Any

from agent_service.core.attempts import AGAIN, Name, Pending, asker_of
from agent_service.core.facts import (
    AttemptAnswered,
    Reopened,
    RequestDropped,
    RequestSent,
    RetrySet,
    StepFinished,
    TaskFinished,
    TasksAsked,
)
from agent_service.core.phases import Plan
from agent_service.core.tools.grants import run_id_of
from agent_service.history import words
from agent_service.history.items import Failure, Item, Items, ItemStatus, id_of
from agent_service.history.plain import instant, one_line
from agent_service.history.results import execution_of, result_of, summary_of_answer

LONGEST_QUERY = 120


class Requests:
    """`newest_step`: the highest step that was sent. `handlers`: what each kind of fact does to the items."""

    def __init__(self, items: Items) -> None:
        self.newest_step = 0
        self.plan: Plan | None = None
        self.handlers: dict[type[Any], Callable[[Any], object]] = {
            AttemptAnswered: self._answered,
            RequestSent: self._sent,
            RetrySet: self._retry,
            RequestDropped: self._drop,
            TasksAsked: self._asked,
            TaskFinished: self._finished,
            StepFinished: self._finished,
        }
        self._items = items
        self._newest: dict[tuple[int, str], str] = {}
        """The newest item of each request, by step and task."""

    def go_on(self, reopened: Reopened) -> None:
        """What the run waits for again."""
        for name in (*reopened.tasks, *reopened.waits_for):
            item_id: str | None = id_of(name)
            while item_id in self._items.by_id:
                self._items.go_on(item_id)
                item_id = self._items.by_id[item_id].parent
        for item_id in map(id_of, reopened.waits_for):
            self._items.go_on(f"{item_id}:attempt:{self._items.by_id[item_id].attempt}")

    def end(self) -> None:
        """What an answer ended together with the run failed; the rest is cancelled with it."""
        for answer in self._items.record.all(AttemptAnswered):
            if answer.status == "error":
                came = self._came(answer)
                self._items.close(id_of(answer.name), "error", text=came["text"], error=came["error"])

    # Sending

    def _sent(self, fact: RequestSent) -> None:
        pending, item_id = fact.pending, id_of(fact.pending.name)
        self.newest_step = max(self.newest_step, pending.step)
        self._items.close(_wait_of(item_id), "ok")
        item = self._begun(pending, fact.approved_by)
        item.attempt, item.status = pending.attempt, "open"
        self._begin_below(
            f"{item_id}:attempt:{pending.attempt}",
            pending,
            kind="attempt",
            title=f"Attempt {pending.attempt}",
            text=f"answer due by {instant(pending.deadline_at)}",
            until=pending.deadline_at,
            about={"child_run_id": run_id_of(self._items.record.entry.run_id, pending)} if pending.grant else {},
        )

    def _begin_below(self, item_id: str, pending: Pending, **told: Any) -> None:
        told |= {"attempt": pending.attempt, "parent": id_of(pending.name)}
        self._items.begin(item_id, **told, **_of(pending))

    def _begun(self, pending: Pending, approved_by: str) -> Item:
        item_id, call, plan = id_of(pending.name), words.call_of(pending.action), self.plan
        about: dict[str, Any] = {"arguments": pending.action.arguments, "approved_by": approved_by or None}
        if item_id not in self._items.by_id and not pending.task:
            expected, risk, why = (plan.expected_outcome, plan.risk, plan.rationale) if plan else ("", "", "")
            about |= {"route": pending.route, "expected": expected, "risk": risk, "rationale": why}
            title = f"Step {pending.step}: {call}"
            self._items.begin(item_id, kind="step", title=title, text=why, about=about, **_of(pending))
        elif item_id not in self._items.by_id:
            self._begin_task(pending.name, call, about=about, tool=pending.action.tool, command=pending.action.command)
        item = self._items.by_id[item_id]
        if not item.has_begun:
            self._items.start(item)
            item.about = about
        return item

    def _begin_task(self, name: Name, call: str, *, text: str = "", **told: Any) -> Item:
        step, task, asked_in = name
        told |= {"step": step, "task": task, "round": asked_in, "text": text}
        parent = self._newest.get((step, asker_of(task)), id_of((step, "", 0)))
        item_id = self._newest[step, task] = id_of(name)
        return self._items.begin(item_id, kind="task", title=f"{task}: {call}", parent=parent, **told)

    def _retry(self, fact: RetrySet) -> None:
        pending, item_id = fact.pending, id_of(fact.pending.name)
        if item_id in self._items.open:
            self._items.open[item_id].attempt, self._items.open[item_id].status = pending.attempt, "waiting"
        self._begin_below(
            f"wait:{self._items.record.entry.seq}:{item_id}",
            pending,
            what=_wait_of(item_id),
            kind="wait",
            status="waiting",
            title="Tries again later",
            text=f"attempt {pending.attempt} follows at {instant(fact.retry_at)}",
            until=fact.retry_at,
            about={"kind": "tool_retry"},
        )

    def _asked(self, fact: TasksAsked) -> None:
        for task in fact.tasks:
            query = f" “{one_line(task.query, LONGEST_QUERY)}”" if task.query else ""
            self._begin_task(
                (fact.step, task.id, task.round),
                f"{words.call_of(task.action)}{query}",
                text=task.reason,
                has_begun=False,
                status="waiting",
                attempt=0,
                tool=task.action.tool,
                command=task.action.command,
                query=task.query,
                reason=task.reason,
                needs=task.needs,
            )

    # Answers

    def _answered(self, fact: AttemptAnswered) -> None:
        if fact.status in ("late", "refused"):
            self._unasked(fact)
            return
        item_id, came = id_of(fact.name), self._came(fact)
        status = _status(fact.status)
        self._items.go_on(f"{item_id}:attempt:{fact.attempt}")  # a person's word settles what had ended
        self._items.close(f"{item_id}:attempt:{fact.attempt}", status, **came)
        self._items.go_on(item_id)
        if (item := self._items.open.get(item_id)) is None:
            return
        item.answered_in, item.summary, item.error = came["answered_in"], came["summary"], came["error"]
        item.execution = came["execution"]
        retried = any(retry.pending.name == fact.name for retry in self._items.record.all(RetrySet))
        if fact.task.rpartition(".")[2] == AGAIN and not retried:  # nothing else tells that it is over
            self._items.close(item_id, status, **came)

    def _finished(self, fact: TaskFinished | StepFinished) -> None:
        item_id, record = id_of(fact.name), self._items.record
        item = self._items.by_id.get(item_id)
        if item is None:
            call = f"{fact.tool} {one_line(fact.command, 64)}"
            item = self._begin_task(fact.name, call, tool=fact.tool, command=fact.command, attempt=0)
        elif not item.has_begun:
            self._items.start(item)
        self._items.go_on(item_id)
        own = words.answer_to(record, fact)
        text = words.came(own, result_of(record, own.step)) if own else words.finished(fact)
        error = Failure.of(own.error) if own else None
        if error is None and fact.status != "ok":
            error = Failure(error_class=fact.error_class, message=fact.summary)
        told: dict[str, Any] = {"text": str(text), "outcome": fact.status, "summary": fact.summary, "error": error}
        told |= {"answered_in": record.entry.seq} if own else {}
        self._items.close(item_id, _status(fact.status), **told)
        self._items.close_within(item)

    def _drop(self, fact: RequestDropped) -> None:
        if item := self._items.by_id.get(id_of(fact.name)):
            self._items.close_within(item)
            self._items.close(item.id, "cancelled")

    def _unasked(self, fact: AttemptAnswered) -> None:
        parent, came = self._items.by_id.get(id_of(fact.name)), self._came(fact)
        if parent and fact.status == "late":
            said = f"error: {fact.error.message}" if fact.error else f"ok: {came['summary']}"
            parent.summary = f"after the end of the run: {said}"
        item = self._items.begin(
            f"result:{came['answered_in']}",
            kind="attempt",
            title=f"Result of {words.request_of(fact.name)} that {words.OUTCOMES[fact.status]}",
            attempt=fact.attempt,
            tool=fact.tool,
            step=fact.step,
            task=fact.task or None,
            round=fact.round or None,
            parent=parent.id if parent else None,
            **came,
        )
        self._items.close(item.id, "refused")

    def _came(self, fact: AttemptAnswered) -> dict[str, Any]:
        result = result_of(self._items.record, fact.step)
        return {
            "text": str(words.came(fact, result)),
            "outcome": fact.status,
            "summary": summary_of_answer(fact, result),
            "error": Failure.of(fact.error),
            "execution": execution_of(result),
            "answered_in": self._items.record.entry.seq,
        }


def _status(status: str) -> ItemStatus:
    return "ok" if status == "ok" else "continuation" if status == "continuation" else "error"


def _wait_of(item_id: str) -> str:
    return f"wait of {item_id}"


def _of(pending: Pending) -> dict[str, Any]:
    action = pending.action
    told = {"step": pending.step, "task": pending.task or None, "round": pending.round or None}
    return told | {"tool": action.tool, "command": action.command}
