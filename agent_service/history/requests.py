"""Steps, their tasks and attempts, as items of a history. Each method is what a fact of its name does to them."""

from typing import Any

from agent_service.core import facts
from agent_service.core.limits import run_id_of
from agent_service.core.phases import Plan
from agent_service.core.waiting import AGAIN, Pending, RequestName, asker_of
from agent_service.history import words
from agent_service.history.items import Item, ItemError, Items, ItemStatus, heard, id_of
from agent_service.history.results import execution_of, result_of, summary_of_answer
from agent_service.history.text import instant, one_line

LONGEST_QUERY = 120


class Requests(Items):
    """`newest_step`: the highest step that was sent. `plan`: the newest that was accepted."""

    def __init__(self) -> None:
        super().__init__()
        self.newest_step = 0
        self.plan: Plan | None = None

    def _wait_again(self, reopened: facts.RunReopened) -> None:
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

    @heard(facts.RequestSent)
    def _request_sent(self, fact: facts.RequestSent) -> None:
        pending, item_id = fact.pending, id_of(fact.pending.name)
        self.newest_step = max(self.newest_step, pending.step)
        self.close(_wait_of(item_id), "ok")
        item = self.by_id.get(item_id) or self._begin_request(pending)
        if item.attempt == 0:
            item.started_at = item.opened_at = self.record.at
        item.attempt, item.status = pending.attempt, "open"
        item.about |= {"arguments": pending.action.arguments, "approved_by": fact.approved_by or None}
        child = run_id_of(self.record.entry.run_id, pending) if pending.grant else None
        item.child_run_id = child or item.child_run_id
        self.begin(
            f"{item_id}:attempt:{pending.attempt}",
            kind="attempt",
            title=f"Attempt {pending.attempt}",
            text=f"answer due by {instant(pending.deadline_at)}",
            until=pending.deadline_at,
            parent=item_id,
            child_run_id=child,
            **_of(pending),
        )

    def _begin_request(self, pending: Pending) -> Item:
        call, plan = words.call_of(pending.action), self.plan
        if pending.task:
            return self._begin_task(pending.name, call, **_of(pending))
        why = {"expected": plan.expected_outcome, "risk": plan.risk, "rationale": plan.rationale} if plan else {}
        told = {"title": f"Step {pending.step}: {call}", "text": plan.rationale if plan else ""}
        return self.begin(
            id_of(pending.name), kind="step", about={"route": pending.route, **why}, **told, **_of(pending)
        )

    def _begin_task(self, name: RequestName, call: str, **told: Any) -> Item:
        step, task, asked_in = name
        asker = step, asker_of(task)
        above = [one for one in self.by_id.values() if one.kind in ("step", "task") and one.name[:2] == asker]
        told |= {"step": step, "task": task, "round": asked_in}
        return self.begin(id_of(name), kind="task", title=f"{task}: {call}", parent=above[-1].id, **told)

    @heard(facts.RetrySet)
    def _retry_set(self, fact: facts.RetrySet) -> None:
        pending, item_id = fact.pending, id_of(fact.pending.name)
        if item := self.open.get(item_id):
            item.attempt, item.status = pending.attempt, "waiting"
        told = words.titled(fact) | {"until": fact.pending.retry_at, "about": {"kind": "tool_retry"}}
        wait_id = f"wait:{self.record.entry.seq}:{item_id}"
        self.begin(wait_id, _wait_of(item_id), kind="wait", status="waiting", parent=item_id, **told, **_of(pending))

    @heard(facts.TasksAsked)
    def _tasks_asked(self, fact: facts.TasksAsked) -> None:
        for task in fact.tasks:
            query = f" “{one_line(task.query, LONGEST_QUERY)}”" if task.query else ""
            action, about = task.action, {"query": task.query, "reason": task.reason, "needs": task.needs}
            told = {"text": task.reason, "tool": action.tool, "command": action.command, "attempt": 0, "about": about}
            call = f"{words.call_of(action)}{query}"
            self._begin_task((fact.step, task.id, task.round), call, status="waiting", **told)

    # Answers

    @heard(facts.AttemptAnswered)
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

    @heard(facts.RequestFinished)
    def _finished(self, fact: facts.RequestFinished) -> None:
        item_id, record = id_of(fact.name), self.record
        self.go_on(item_id)
        own = words.answer_to(record, fact)
        text = words.came(own, result_of(record, own.step)) if own else words.said(fact)
        error = ItemError.of(own.error) if own else None
        if error is None and fact.status != "ok":
            error = ItemError(error_class=fact.error_class, message=fact.summary)
        told: dict[str, Any] = {"outcome": fact.status, "summary": fact.summary, "error": error}
        told |= {"answered_in": record.entry.seq} if own else {}
        self.close(item_id, _status(fact.status), text=str(text), **told)

    @heard(facts.RequestDropped)
    def _request_dropped(self, fact: facts.RequestDropped) -> None:
        self.close(id_of(fact.name), "cancelled")

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
            "error": ItemError.of(fact.error),
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
