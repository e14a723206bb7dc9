"""Items of a history as they begin, end and begin again; and steps, their tasks and attempts."""

from typing import Any

from agent_service.core import facts
from agent_service.core.limits import child_run_id
from agent_service.core.phases import Plan
from agent_service.core.waiting import AGAIN, Pending, RequestName, asker_id
from agent_service.history import words
from agent_service.history.items import Item, ItemError, ItemKind, ItemStatus, as_tree, id_of
from agent_service.history.results import execution_of, result_of, summary_of_answer
from agent_service.history.text import instant, one_line
from agent_service.run.journal import JournalRecord
from schemas.values import replace

LONGEST_QUERY = 120


class Requests:
    """Items of a run in order of their beginning (`by_id`), the open ones by slot, and copies of those that the current
    `record` closed. A slot holds one item at a time; it is the item's id unless named.

    `newest_step` is the highest step that was sent, `plan` the newest accepted one.
    """

    record: JournalRecord

    def __init__(self) -> None:
        self.open: dict[str, Item] = {}
        self.closed: list[Item] = []
        self.by_id: dict[str, Item] = {}
        self.newest_step = 0
        self.plan: Plan | None = None

    def tree(self) -> list[Item]:
        """All items, each followed by its parts."""
        tree = as_tree([*self.by_id.values()])
        for item in tree:
            above = self.by_id.get(item.parent or "")
            if above and item.kind == "attempt":
                both = item.ended_in == above.ended_in
                item.repeats = both and (item.ended_in is not None or item.entry == above.entry)
        return tree

    def of_kind(self, kind: ItemKind) -> list[Item]:
        return [item for item in self.by_id.values() if item.kind == kind]

    def begin(self, item_id: str, slot: str = "", **fields: Any) -> Item:
        slot = slot or item_id
        self.close(slot, "cancelled")
        at, entry, above = self.record.entry.at, self.record.entry.seq, self.by_id.get(fields.get("parent") or "")
        depth = above.depth + 1 if above else 0
        fields = {"status": "open", "text": ""} | fields
        item = Item(id=item_id, entry=entry, depth=depth, started_at=at, opened_at=at, **fields)
        self.by_id[item_id] = self.open[slot] = item
        return item

    def reopen(self, item_id: str) -> None:
        if item_id in self.by_id and item_id not in self.open:
            item = self.open[item_id] = self.by_id[item_id]
            item.status = "waiting" if item.attempt == 0 else "open"
            item.ended_at, item.ended_in, item.error, item.outcome = None, None, None, ""
            item.again, item.opened_at, item.opened_in = item.again + 1, self.record.entry.at, self.record.entry.seq

    def close(self, slot: str, status: ItemStatus, **fields: Any) -> None:
        """Also cancels its open parts."""
        if item := self.open.pop(slot, None):
            for name, value in fields.items():
                setattr(item, name, value)
            item.status, item.ended_at, item.ended_in = status, self.record.entry.at, self.record.entry.seq
            self.closed.append(replace(item))
            for part in [name for name, one in self.open.items() if one.parent == item.id]:
                self.close(part, "cancelled")

    def _reopen_requests(self, reopened: facts.RunReopened) -> None:
        for name in (*reopened.tasks, *reopened.waits_for):
            item_id: str | None = id_of(name)
            while item_id in self.by_id:
                self.reopen(item_id)
                item_id = self.by_id[item_id].parent
        for item_id in map(id_of, reopened.waits_for):
            self.reopen(f"{item_id}:attempt:{self.by_id[item_id].attempt}")

    def _fail_answered(self) -> None:
        """A request fails if its answer ended the run; the others are cancelled."""
        for answer in self.record.all(facts.AttemptAnswered):
            if answer.status == "error":
                fields = self._answer_fields(answer)
                self.close(id_of(answer.name), "error", text=fields["text"], error=fields["error"])

    # Sending

    def on_request_sent(self, fact: facts.RequestSent) -> None:
        pending, item_id = fact.pending, id_of(fact.pending.name)
        self.newest_step = max(self.newest_step, pending.step)
        self.close(_retry_slot(item_id), "ok")
        item = self.by_id.get(item_id) or self._begin_request(pending)
        if item.attempt == 0:
            item.started_at = item.opened_at = self.record.entry.at
        item.attempt, item.status = pending.attempt, "open"
        item.about |= {"arguments": pending.action.arguments, "approved_by": fact.approved_by or None}
        child = child_run_id(self.record.entry.run_id, pending) if pending.grant else None
        item.child_run_id = child or item.child_run_id
        self.begin(
            f"{item_id}:attempt:{pending.attempt}",
            kind="attempt",
            title=f"Attempt {pending.attempt}",
            text=f"answer due by {instant(pending.deadline_at)}",
            until=pending.deadline_at,
            parent=item_id,
            child_run_id=child,
            **_request_fields(pending),
        )

    def _begin_request(self, pending: Pending) -> Item:
        call, plan = words.call_of(pending.action), self.plan
        if pending.task:
            return self._begin_task(pending.name, call, **_request_fields(pending))
        about = {"route": pending.route}
        about |= {"expected": plan.expected_outcome, "risk": plan.risk, "rationale": plan.rationale} if plan else {}
        texts = {"title": f"Step {pending.step}: {call}", "text": plan.rationale if plan else ""}
        return self.begin(id_of(pending.name), kind="step", about=about, **texts, **_request_fields(pending))

    def _begin_task(self, name: RequestName, call: str, **fields: Any) -> Item:
        step, task, asked_in = name
        asker = step, asker_id(task)
        above = [one for one in self.by_id.values() if one.kind in ("step", "task") and one.name[:2] == asker]
        fields |= {"step": step, "task": task, "round": asked_in}
        return self.begin(id_of(name), kind="task", title=f"{task}: {call}", parent=above[-1].id, **fields)

    def on_retry_set(self, fact: facts.RetrySet) -> None:
        pending, item_id = fact.pending, id_of(fact.pending.name)
        item = self.open[item_id]  # its answer in the same entry left it open
        item.attempt, item.status = pending.attempt, "waiting"
        fields = words.title_and_text(fact) | {"until": pending.retry_at, "about": {"kind": "tool_retry"}}
        fields |= {"parent": item_id, **_request_fields(pending)}
        wait_id = f"wait:{self.record.entry.seq}:{item_id}"
        self.begin(wait_id, _retry_slot(item_id), kind="wait", status="waiting", **fields)

    def on_tasks_asked(self, fact: facts.TasksAsked) -> None:
        for task in fact.tasks:
            query = f" “{one_line(task.query, LONGEST_QUERY)}”" if task.query else ""
            action, about = task.action, {"query": task.query, "reason": task.reason, "needs": task.needs}
            fields = {"text": task.reason, "tool": action.tool, "command": action.command, "attempt": 0, "about": about}
            call = f"{words.call_of(action)}{query}"
            self._begin_task((task.step, task.id, task.round), call, status="waiting", **fields)

    # Answers

    def on_attempt_answered(self, fact: facts.AttemptAnswered) -> None:
        if fact.status in ("late", "refused"):
            self._add_unexpected_result(fact)
            return
        item_id, fields, status = id_of(fact.name), self._answer_fields(fact), _status(fact.status)
        self.reopen(f"{item_id}:attempt:{fact.attempt}")  # a person's word may answer an attempt that had ended
        self.close(f"{item_id}:attempt:{fact.attempt}", status, **fields)
        self.reopen(item_id)
        item = self.open[item_id]
        for name in ("answered_in", "summary", "error", "execution"):
            setattr(item, name, fields[name])
        retried = any(retry.pending.name == fact.name for retry in self.record.all(facts.RetrySet))
        if fact.task.rpartition(".")[2] == AGAIN and not retried:  # no fact says that it finished
            self.close(item_id, status, **fields)

    def on_request_finished(self, fact: facts.RequestFinished) -> None:
        item_id, record = id_of(fact.name), self.record
        self.reopen(item_id)
        own = words.answer_behind(record, fact)
        text = words.answer_clause(own, result_of(record, own.step)) if own else words.clause(fact)
        error = ItemError.of(own.error) if own else None
        if error is None and fact.status != "ok":
            error = ItemError(error_class=fact.error_class, message=fact.summary)
        fields: dict[str, Any] = {"outcome": fact.status, "summary": fact.summary, "error": error}
        fields |= {"answered_in": record.entry.seq} if own else {}
        self.close(item_id, _status(fact.status), text=str(text), **fields)

    def on_request_dropped(self, fact: facts.RequestDropped) -> None:
        self.close(id_of(fact.name), "cancelled")

    def _add_unexpected_result(self, fact: facts.AttemptAnswered) -> None:
        parent, fields = self.by_id.get(id_of(fact.name)), self._answer_fields(fact)
        if parent and fact.status == "late":
            result = f"error: {fact.error.message}" if fact.error else f"ok: {fields['summary']}"
            parent.summary = f"after the end of the run: {result}"
        title = f"Result of {words.request_name(fact.name)} that {words.OUTCOMES[fact.status]}"
        fields |= {"title": title, "tool": fact.tool, "attempt": fact.attempt, "parent": parent.id if parent else None}
        fields |= fact.correlation
        item = self.begin(f"result:{self.record.entry.seq}", kind="attempt", **fields)
        self.close(item.id, "refused")

    def _answer_fields(self, fact: facts.AttemptAnswered) -> dict[str, Any]:
        result = result_of(self.record, fact.step)
        return {
            "text": str(words.answer_clause(fact, result)),
            "outcome": fact.status,
            "summary": summary_of_answer(fact, result),
            "error": ItemError.of(fact.error),
            "execution": execution_of(result),
            "answered_in": self.record.entry.seq,
        }


def _status(status: str) -> ItemStatus:
    return "ok" if status == "ok" else "continuation" if status == "continuation" else "error"


def _retry_slot(item_id: str) -> str:
    return f"wait of {item_id}"


def _request_fields(pending: Pending) -> dict[str, Any]:
    action = pending.action
    return pending.correlation | {"tool": action.tool, "command": action.command, "attempt": pending.attempt}
