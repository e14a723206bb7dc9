"""Steps, their tasks and attempts, as items of a history."""

from typing import Any

from agent_service.core.attempts import AGAIN, Pending, Task, asker_of
from agent_service.core.facts import (
    AttemptAnswered,
    Fact,
    Name,
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
from agent_service.history.items import Failure, Item, Items, ItemStatus, Outcome, depth_of, id_of
from agent_service.history.plain import instant, one_line
from agent_service.history.results import execution_of, result_of, summary_of_answer
from agent_service.run.journal import Record

LONGEST_QUERY = 120
_STATUSES: dict[Outcome, ItemStatus] = {"ok": "ok", "continuation": "continuation"}


class Requests:
    """`newest_step`: the highest step that was sent."""

    def __init__(self, items: Items) -> None:
        self.newest_step = 0
        self.plan: Plan | None = None
        self._items = items
        self._newest: dict[tuple[int, str], str] = {}
        """The newest item of each request, by step and task."""
        self._places: dict[str, int] = {}

    def of_kind(self, kind: str, step: int | None = None) -> tuple[Item, ...]:
        """In the order in which they were asked for."""
        found = (item for item in self._items.by_id.values() if item.kind == kind and step in (None, item.step))
        return tuple(sorted(found, key=lambda item: self._places.get(item.id, 0)))

    def led_to(self, record: Record, fact: Fact) -> None:
        match fact:
            case AttemptAnswered():
                self._answered(record, fact)
            case RequestSent():
                self._sent(record, fact)
            case RetrySet(pending=pending):
                self._retry(record, pending, fact)
            case RequestDropped(name=name):
                self._drop(record, name)
            case TasksAsked():
                self._asked(record, fact)
            case TaskFinished():
                self._task_finished(record, fact)
            case StepFinished():
                self._step_finished(record, fact)

    def go_on(self, record: Record, reopened: Reopened) -> None:
        """What the run waits for again."""
        for name in (*reopened.tasks, *reopened.waits_for):
            item_id = id_of(name)
            self._items.go_on(item_id, record, item_id)
            above = self._items.by_id.get(item_id)
            while above is not None and above.parent:
                self._items.go_on(above.parent, record, above.parent)
                above = self._items.by_id.get(above.parent)
        for item_id in map(id_of, reopened.waits_for):
            attempt = self._items.by_id[item_id].attempt
            self._items.go_on(_attempt_of(item_id), record, f"{item_id}:attempt:{attempt}")

    def end(self, record: Record) -> None:
        """What an answer ended together with the run failed; the rest is cancelled with it."""
        for answer in record.all(AttemptAnswered):
            item_id, came = id_of(answer.name), _came(record, answer)
            if answer.status == "error":
                self._items.close(item_id, record, "error", text=came["text"], error=came["error"])

    # Sending

    def _sent(self, record: Record, fact: RequestSent) -> None:
        pending = fact.pending
        self.newest_step = max(self.newest_step, pending.step)
        item_id = id_of(pending.name)
        self._items.close(_wait_of(item_id), record, "ok")
        item = self._begun(record, pending)
        item.attempt, item.status = pending.attempt, "open"
        item.about = item.about or self._about(pending, fact.approved_by)
        self._items.begin(
            _attempt_of(item_id),
            record,
            f"{item_id}:attempt:{pending.attempt}",
            kind="attempt",
            title=f"Attempt {pending.attempt}",
            text=words.sent_off(pending),
            attempt=pending.attempt,
            until=pending.deadline_at,
            parent=item_id,
            depth=item.depth + 1,
            about={"child_run_id": run_id_of(record.entry.run_id, pending)} if pending.grant else {},
            **_of(pending),
        )

    def _about(self, pending: Pending, approved_by: str) -> dict[str, Any]:
        about: dict[str, Any] = {"arguments": pending.action.arguments, "approved_by": approved_by or None}
        if pending.task:
            return about
        plan = self.plan
        reasons = (plan.expected_outcome, plan.risk, plan.rationale) if plan else ("", "", "")
        return about | {"route": pending.route} | dict(zip(("expected", "risk", "rationale"), reasons, strict=True))

    def _begun(self, record: Record, pending: Pending) -> Item:
        item_id = id_of(pending.name)
        known = self._items.by_id.get(item_id)
        if known and known.started_at:
            return known
        call = words.call_of(pending.action)
        if not pending.task:
            title, why = f"Step {pending.step}: {call}", self.plan.rationale if self.plan else ""
            return self._items.begin(item_id, record, item_id, kind="step", title=title, text=why, **_of(pending))
        query, why = (known.query, known.reason) if known else ("", "")
        asked = f" “{one_line(query, LONGEST_QUERY)}”" if query else ""
        return self._begin_task(record, pending.name, f"{pending.task}: {call}{asked}", why, _of(pending))

    def _begin_task(self, record: Record, name: Name, title: str, text: str, told: dict[str, Any]) -> Item:
        step, task, _ = name
        item_id, known = id_of(name), self._items.by_id.get(id_of(name))
        self._items.open.pop(item_id, None)  # it was asked for, and begins now
        item = self._items.begin(
            item_id,
            record,
            item_id,
            kind="task",
            title=title,
            text=text,
            parent=self._above(step, task),
            depth=depth_of(task),
            **told,
        )
        if known:
            item.query, item.reason, item.needs = known.query, known.reason, known.needs
        self._newest[step, task] = item_id
        self._places.setdefault(item_id, len(self._places))
        return item

    def _above(self, step: int, task: str) -> str:
        return self._newest.get((step, asker_of(task)), id_of((step, "", 0)))

    def _retry(self, record: Record, pending: Pending, fact: RetrySet) -> None:
        item_id = id_of(pending.name)
        if item_id in self._items.open:
            self._items.change(item_id, status="waiting", attempt=pending.attempt)
        self._items.begin(
            _wait_of(item_id),
            record,
            f"wait:{record.entry.seq}" + ("" if pending.name == (pending.step, "", 0) else f":{item_id}"),
            kind="wait",
            title="Tries again later",
            text=f"{words.attempt_of(pending)} follows at {instant(fact.retry_at)}",
            attempt=pending.attempt,
            until=fact.retry_at,
            parent=item_id,
            depth=depth_of(pending.task) + 1,
            about={"kind": "tool_retry"},
            **_of(pending),
        )

    def _asked(self, record: Record, fact: TasksAsked) -> None:
        for task in fact.tasks:
            item_id = id_of((fact.step, task.id, task.round))
            item = _waiting(item_id, record, fact.step, task, self._above(fact.step, task.id))
            self._items.by_id[item_id] = self._items.open[item_id] = item
            self._places.setdefault(item_id, len(self._places))

    # Answers

    def _answered(self, record: Record, fact: AttemptAnswered) -> None:
        if fact.status in ("late", "refused"):
            self._unasked(record, fact)
            return
        item_id, came = id_of(fact.name), _came(record, fact)
        if _attempt_of(item_id) not in self._items.open:  # a person's word, or a late result, settles what had ended
            self._items.go_on(_attempt_of(item_id), record, f"{item_id}:attempt:{fact.attempt}")
        self._items.close(_attempt_of(item_id), record, _STATUSES.get(came["outcome"], "error"), **came)
        if item_id not in self._items.open:
            self._items.go_on(item_id, record, item_id)
        if (item := self._items.by_id.get(item_id)) is None:
            return
        item.answered_in, item.summary, item.error = record.entry.seq, came["summary"], came["error"]
        item.execution = came["execution"]
        if words.of(fact.task) != fact.task or fact.task == AGAIN:
            self._asked_again(record, item, fact, came)

    def _asked_again(self, record: Record, item: Item, fact: AttemptAnswered, came: dict[str, Any]) -> None:
        """A task, or the step itself, was asked again: that request is over with its answer, unless it is retried."""
        if any(retry.pending.name == fact.name for retry in record.all(RetrySet)):
            return
        self._items.close(item.id, record, _STATUSES.get(came["outcome"], "error"), **came)

    def _task_finished(self, record: Record, fact: TaskFinished) -> None:
        item_id = id_of(fact.name)
        known = self._items.by_id.get(item_id)
        if known is None or known.started_at is None:
            told = {"step": fact.step, "task": fact.task, "round": fact.round}
            told |= {"tool": fact.tool, "command": fact.command}
            call = f"{fact.tool} {one_line(fact.command, 64)}"
            self._begin_task(record, fact.name, f"{fact.task}: {call}", "", told).attempt = 0
        error = None if fact.status == "ok" else Failure(error_class=fact.error_class, message=fact.summary)
        self._items.go_on(item_id, record, item_id)
        self._items.close(
            item_id, record, _STATUSES.get(fact.status, "error"), **self._ends(record, item_id, fact, error)
        )
        self._cancel_below(record, f"{item_id}:")

    def _step_finished(self, record: Record, fact: StepFinished) -> None:
        item_id = id_of((fact.step, "", 0))
        error = None if fact.status == "ok" else Failure(error_class=fact.error_class, message=fact.summary)
        self._items.go_on(item_id, record, item_id)
        self._items.close(
            item_id, record, _STATUSES.get(fact.status, "error"), **self._ends(record, item_id, fact, error)
        )
        for what in [
            what for what, item in self._items.open.items() if item.step == fact.step and item.kind != "phase"
        ]:
            self._items.close(what, record, "cancelled")

    def _ends(
        self, record: Record, item_id: str, fact: TaskFinished | StepFinished, error: Failure | None
    ) -> dict[str, Any]:
        names = [answer for answer in record.all(AttemptAnswered) if answer.step == fact.step]
        own = next((answer for answer in names if _is_of(answer, fact)), None)
        item = self._items.by_id[item_id]
        text = words.answered(record, own) if own else words.finished(words.request_of(item.name), fact)
        known = Failure.of(own.error) if own and own.error else error
        came = {"text": text, "outcome": fact.status, "summary": fact.summary, "error": known}
        return came | ({"answered_in": record.entry.seq} if own else {})

    def _drop(self, record: Record, name: Name) -> None:
        item_id = id_of(name)
        self._items.close(_attempt_of(item_id), record, "cancelled")
        self._items.close(_wait_of(item_id), record, "cancelled")
        self._items.close(item_id, record, "cancelled")

    def _cancel_below(self, record: Record, prefix: str) -> None:
        for what in [what for what, item in self._items.open.items() if item.id.startswith(prefix)]:
            self._items.close(what, record, "cancelled")

    def _unasked(self, record: Record, fact: AttemptAnswered) -> None:
        item_id = id_of(fact.name)
        parent = self._items.by_id.get(item_id)
        if parent and fact.status == "late":
            came = fact.error.message if fact.error else summary_of_answer(record, fact)
            parent.summary = f"after the end of the run: {'error' if fact.error else 'ok'}: {came}"
        self._items.begin(
            "unasked",
            record,
            f"result:{record.entry.seq}",
            kind="attempt",
            title=f"Result of {words.request_of(fact.name)} that {words.OUTCOMES[fact.status]}",
            attempt=fact.attempt,
            tool=fact.tool,
            step=fact.step,
            task=fact.task,
            round=fact.round,
            parent=item_id if parent else None,
            depth=depth_of(fact.task) + 1 if parent else 0,
            **_came(record, fact),
        )
        self._items.close("unasked", record, "refused")


def _attempt_of(item_id: str) -> str:
    return f"attempt of {item_id}"


def _wait_of(item_id: str) -> str:
    return f"wait of {item_id}"


def _is_of(answer: AttemptAnswered, fact: TaskFinished | StepFinished) -> bool:
    if isinstance(fact, StepFinished):
        return answer.task in ("", AGAIN)
    return words.of(answer.task) == fact.task


def _of(pending: Pending) -> dict[str, Any]:
    return {
        "step": pending.step,
        "task": pending.task,
        "round": pending.round,
        "tool": pending.action.tool,
        "command": pending.action.command,
    }


def _waiting(item_id: str, record: Record, step: int, task: Task, parent: str) -> Item:
    return Item(
        id=item_id,
        entry=record.entry.seq,
        kind="task",
        title="",
        text="",
        status="waiting",
        started_at=None,
        parent=parent,
        depth=depth_of(task.id),
        step=step,
        task=task.id,
        round=task.round,
        attempt=0,
        tool=task.action.tool,
        command=task.action.command,
        query=task.query,
        reason=task.reason,
        needs=task.needs,
    )


def _came(record: Record, fact: AttemptAnswered) -> dict[str, Any]:
    return {
        "text": words.answered(record, fact),
        "outcome": fact.status,
        "summary": summary_of_answer(record, fact),
        "error": Failure.of(fact.error),
        "execution": execution_of(result_of(record, fact)),
        "answered_in": record.entry.seq,
    }
