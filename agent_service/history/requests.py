"""Steps, their tasks and attempts, as items of a history. Each method is what a fact of its name does to them."""

from typing import Any

from agent_service.core import facts
from agent_service.core.grants import run_id_of
from agent_service.core.phases import Plan
from agent_service.core.waiting import AGAIN, Name, Pending, asker_of
from agent_service.history import words
from agent_service.history.items import Failure, Item, Items, ItemStatus, id_of
from agent_service.history.plain import instant, one_line
from agent_service.history.results import execution_of, result_of, summary_of_answer

LONGEST_QUERY = 120


class Requests(Items):
    """`newest_step`: the highest step that was sent. `plan`: the newest that was accepted."""

    def __init__(self) -> None:
        super().__init__()
        self.newest_step = 0
        self.plan: Plan | None = None
        self._newest: dict[tuple[int, str], str] = {}
        """The newest item of each request, by step and task."""

    def _wait_again(self, reopened: facts.Reopened) -> None:
        """For what the run waits for again."""
        for name in (*reopened.tasks, *reopened.waits_for):
            item_id: str | None = id_of(name)
            while item_id in self.by_id:
                self.go_on(item_id)
                item_id = self.by_id[item_id].parent
        for item_id in map(id_of, reopened.waits_for):
            self.go_on(f"{item_id}:attempt:{self.by_id[item_id].attempt}")

    def _fail_with_run(self) -> None:
        """What an answer ended together with the run failed; the rest is cancelled with it."""
        for answer in self.record.all(facts.AttemptAnswered):
            if answer.status == "error":
                came = self._came(answer)
                self.close(id_of(answer.name), "error", text=came["text"], error=came["error"])

    # Sending

    def _request_sent(self, fact: facts.RequestSent) -> None:
        pending, item_id, plan = fact.pending, id_of(fact.pending.name), self.plan
        self.newest_step = max(self.newest_step, pending.step)
        self.close(_wait_of(item_id), "ok")
        call = words.call_of(pending.action)
        about: dict[str, Any] = {"arguments": pending.action.arguments, "approved_by": fact.approved_by or None}
        item = self.by_id.get(item_id)
        if item is None and pending.task:
            item = self._begin_task(pending.name, call, about=about, **_of(pending))
        elif item is None:
            expected, risk, why = (plan.expected_outcome, plan.risk, plan.rationale) if plan else ("", "", "")
            about |= {"route": pending.route, "expected": expected, "risk": risk, "rationale": why}
            title = f"Step {pending.step}: {call}"
            item = self.begin(item_id, kind="step", title=title, text=why, about=about, **_of(pending))
        elif not item.has_begun:
            self.start(item)
            item.about |= about
        item.attempt, item.status = pending.attempt, "open"
        if pending.grant:
            item.child_run_id = run_id_of(self.record.entry.run_id, pending)
        self.begin(
            f"{item_id}:attempt:{pending.attempt}",
            kind="attempt",
            title=f"Attempt {pending.attempt}",
            text=f"answer due by {instant(pending.deadline_at)}",
            until=pending.deadline_at,
            parent=item_id,
            child_run_id=item.child_run_id if pending.grant else None,
            **_of(pending),
        )

    def _begin_task(self, name: Name, call: str, **told: Any) -> Item:
        step, task, asked_in = name
        told |= {"step": step, "task": task, "round": asked_in}
        parent = self._newest.get((step, asker_of(task)), id_of((step, "", 0)))
        item_id = self._newest[step, task] = id_of(name)
        return self.begin(item_id, kind="task", title=f"{task}: {call}", parent=parent, **told)

    def _retry_set(self, fact: facts.RetrySet) -> None:
        pending, item_id = fact.pending, id_of(fact.pending.name)
        if item := self.open.get(item_id):
            item.attempt, item.status = pending.attempt, "waiting"
        told = words.titled(fact) | {"until": fact.retry_at, "about": {"kind": "tool_retry"}}
        wait_id = f"wait:{self.record.entry.seq}:{item_id}"
        self.begin(wait_id, _wait_of(item_id), kind="wait", status="waiting", parent=item_id, **told, **_of(pending))

    def _tasks_asked(self, fact: facts.TasksAsked) -> None:
        for task in fact.tasks:
            query = f" “{one_line(task.query, LONGEST_QUERY)}”" if task.query else ""
            action, about = task.action, {"query": task.query, "reason": task.reason, "needs": task.needs}
            told = {"text": task.reason, "tool": action.tool, "command": action.command, "attempt": 0, "about": about}
            call = f"{words.call_of(action)}{query}"
            self._begin_task((fact.step, task.id, task.round), call, has_begun=False, status="waiting", **told)

    # Answers

    def _attempt_answered(self, fact: facts.AttemptAnswered) -> None:
        if fact.status in ("late", "refused"):
            self._unasked(fact)
            return
        item_id, came, status = id_of(fact.name), self._came(fact), _status(fact.status)
        self.go_on(f"{item_id}:attempt:{fact.attempt}")  # a person's word settles what had ended
        self.close(f"{item_id}:attempt:{fact.attempt}", status, **came)
        self.go_on(item_id)
        item = self.open.get(item_id)
        if item is None:
            return
        for name in ("answered_in", "summary", "error", "execution"):
            setattr(item, name, came[name])
        retried = any(retry.pending.name == fact.name for retry in self.record.all(facts.RetrySet))
        if fact.task.rpartition(".")[2] == AGAIN and not retried:  # nothing else tells that it is over
            self.close(item_id, status, **came)

    def _task_finished(self, fact: facts.TaskFinished | facts.StepFinished) -> None:
        item_id, record = id_of(fact.name), self.record
        item = self.by_id.get(item_id)
        if item is None:
            call = f"{fact.tool} {one_line(fact.command, 64)}"
            item = self._begin_task(fact.name, call, tool=fact.tool, command=fact.command, attempt=0)
        self.start(item)
        self.go_on(item_id)
        own = words.answer_to(record, fact)
        text = words.came(own, result_of(record, own.step)) if own else words.said(fact)
        error = Failure.of(own.error) if own else None
        if error is None and fact.status != "ok":
            error = Failure(error_class=fact.error_class, message=fact.summary)
        item.answered_in = record.entry.seq if own else item.answered_in
        told: dict[str, Any] = {"outcome": fact.status, "summary": fact.summary, "error": error}
        self.close(item_id, _status(fact.status), text=str(text), **told)
        self.close_within(item)

    _step_finished = _task_finished

    def _request_dropped(self, fact: facts.RequestDropped) -> None:
        if item := self.by_id.get(id_of(fact.name)):
            self.close_within(item)
            self.close(item.id, "cancelled")

    def _unasked(self, fact: facts.AttemptAnswered) -> None:
        parent, came = self.by_id.get(id_of(fact.name)), self._came(fact)
        if parent and fact.status == "late":
            said = f"error: {fact.error.message}" if fact.error else f"ok: {came['summary']}"
            parent.summary = f"after the end of the run: {said}"
        title = f"Result of {words.request_of(fact.name)} that {words.OUTCOMES[fact.status]}"
        told: dict[str, Any] = {
            "step": fact.step,
            "task": fact.task or None,
            "round": fact.round or None,
            "attempt": fact.attempt,
        }
        told |= {"title": title, "tool": fact.tool, "parent": parent.id if parent else None, **came}
        item = self.begin(f"result:{self.record.entry.seq}", kind="attempt", **told)
        self.close(item.id, "refused")

    def _came(self, fact: facts.AttemptAnswered) -> dict[str, Any]:
        result = result_of(self.record, fact.step)
        return {
            "text": str(words.came(fact, result)),
            "outcome": fact.status,
            "summary": summary_of_answer(fact, result),
            "error": Failure.of(fact.error),
            "execution": execution_of(result),
            "answered_in": self.record.entry.seq,
        }


def _status(status: str) -> ItemStatus:
    return "ok" if status == "ok" else "continuation" if status == "continuation" else "error"


def _wait_of(item_id: str) -> str:
    return f"wait of {item_id}"


def _of(pending: Pending) -> dict[str, Any]:
    action, told = pending.action, {"step": pending.step, "task": pending.task or None, "round": pending.round or None}
    return told | {"tool": action.tool, "command": action.command, "attempt": pending.attempt}
