"""The tree of sub-requests that steps gather, for API, pages, traces, timeline and terminal.

A task, with its own key, may ask for more in turn; its asker is asked again (`again`) once all came.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from agent_service.core.graph.gathered import task_of
from agent_service.core.state import RunState
from agent_service.core.tools.attempts import AGAIN, Evidence, Pending, Task, asker_of
from agent_service.core.tools.finishing import summary_of_output
from agent_service.core.tools.flights import flights, gathering_of, gatherings
from agent_service.run.moments import Moment, opened
from agent_service.telling.acts import Act, Name, act_of, settled
from agent_service.telling.plain import View
from schemas.fields import Instant

Key = tuple[str, int]
"""The name of a sub-request in its step."""
TaskStatus = Literal["waiting", "pending", "ok", "error", "continuation", "budget", "unfinished"]
"""`pending`: sent, or asked for more. `continuation`: asked again, it asked for more. `budget`: that was too much.
`unfinished`: its step or its run ended before.
"""
_OPEN = frozenset({"waiting", "pending"})


class FailureView(View):
    """Why something failed."""

    error_class: str = Field(alias="class")
    message: str


class TaskView(View):
    """A sub-request of a step. `id` and `round` name it there, as the keys of its messages do.

    `asked_by` is the task that asked for it, null where the step's own tool did. `attempt` is the newest, 0 before its
    first request is sent, which is at `started_at`. `query` is of a retrieval, `reason` is why it was asked for.
    `child_run_id` is the run that works on it, where it asks an agent.
    """

    id: str
    round: int
    tool: str
    command: str
    status: TaskStatus = "waiting"
    attempt: int = 0
    depends_on: tuple[str, ...] = ()
    asked_by: str | None = None
    query: str | None = None
    reason: str = ""
    summary: str = ""
    error: FailureView | None = None
    started_at: Instant | None = None
    ended_at: Instant | None = None
    child_run_id: str | None = None

    @property
    def key(self) -> Key:
        return self.id, self.round

    @property
    def depth(self) -> int:
        return depth_of(self.id)

    @property
    def is_again(self) -> bool:
        return self.id.rpartition(".")[2] == AGAIN


class Tasks:
    """`seq` is the last entry that was heard."""

    def __init__(self, moments: Iterable[Moment] = ()) -> None:
        self.seq = 0
        self._told = defaultdict[int, dict[Key, TaskView]](dict)
        self.hear(moments)

    def hear(self, moments: Iterable[Moment]) -> None:
        for moment in moments:
            if moment.entry.seq > self.seq:  # else somebody has told it meanwhile
                for step in _gathering(moment):
                    self._take(moment, step, self._told[step])
                self.seq = moment.entry.seq

    def of(self, step: int) -> tuple[TaskView, ...]:
        told = self._told.get(step)
        return tuple(_in_order(told)) if told else ()

    def _take(self, moment: Moment, step: int, told: dict[Key, TaskView]) -> None:
        _begun(moment, step, told)
        waits = _waiting(moment.after, step)
        open_now = {(task.id, task.round) for task in _asked_for(moment.after, step)} | waits.keys()
        came = _came(moment, step)
        for key, view in told.items():
            if key in open_now:
                told[key] = _going_on(view, waits.get(key, False))
            elif key in came or view.status in _OPEN:  # a person's word may settle what had ended
                told[key] = _over(view, moment.entry.at, came.get(key))


def depth_of(task: str) -> int:
    return task.count(".") + 1 if task else 0


def child_of(run: RunState, name: Name) -> str | None:
    return next((c.run_id for c in reversed(run.children) if (c.step, c.task, c.round) == name), None)


def going_on(run: RunState) -> frozenset[Name]:
    under_way = {flight.pending.name for flight in flights(run.waiting)}
    asked = ((one.step, task.id, task.round) for one in gatherings(run.waiting) for task in one.tasks)
    return frozenset(under_way | set(asked))


def ended_by(moment: Moment, act: Act) -> tuple[Name, ...]:
    before = gathering_of(moment.before.waiting, act.step) if moment.before else None
    asked = task_of(before, act.task) if before else None
    names = dict.fromkeys((act.name, *(((act.step, asked.id, asked.round),) if asked else ())))
    still = going_on(moment.after)
    return tuple(name for name in names if name not in still)


def _gathering(moment: Moment) -> set[int]:
    before = gatherings(opened(moment.before) if moment.reopened else moment.before.waiting) if moment.before else ()
    return {gathering.step for gathering in (*before, *gatherings(moment.after.waiting))}


def _asked_for(run: RunState, step: int) -> Iterator[Task]:
    for gathering in gatherings(run.waiting):
        if gathering.step == step:
            yield from (task for task in gathering.tasks if task.id)


def _begun(moment: Moment, step: int, told: dict[Key, TaskView]) -> None:
    for task in _asked_for(moment.after, step):
        told.setdefault((task.id, task.round), _asked(task))
    for sent in (sent for sent in moment.sent if sent.step == step and sent.task):
        told[sent.task, sent.round] = _sent(told.get((sent.task, sent.round)), sent, moment.after)
    for known in (known for known in moment.gathered if known.step == step):
        told.setdefault((known.task, known.round), _failed(known))


def _waiting(run: RunState, step: int) -> dict[Key, bool]:
    under_way = (flight for flight in flights(run.waiting) if flight.pending.step == step and flight.pending.task)
    return {(flight.pending.task, flight.pending.round): flight.retry_at is not None for flight in under_way}


def _asked(task: Task) -> TaskView:
    return TaskView(
        id=task.id,
        round=task.round,
        tool=task.action.tool,
        command=task.action.command,
        depends_on=task.needs,
        asked_by=asker_of(task.id) or None,
        query=task.query or None,
        reason=task.reason,
    )


def _failed(known: Evidence) -> TaskView:
    return TaskView(
        id=known.task,
        round=known.round,
        tool=known.tool,
        command=known.command,
        asked_by=asker_of(known.task) or None,
        query=known.query or None,
    )


def _sent(known: TaskView | None, pending: Pending, run: RunState) -> TaskView:
    view = known or TaskView(
        id=pending.task,
        round=pending.round,
        tool=pending.action.tool,
        command=pending.action.command,
        asked_by=asker_of(pending.task) or None,
    )
    began = view.started_at or pending.requested_at
    child = child_of(run, pending.name)
    return view.model_copy(update={"attempt": pending.attempt, "started_at": began, "child_run_id": child})


def _going_on(view: TaskView, waits: bool) -> TaskView:
    status: TaskStatus = "waiting" if waits or not view.attempt else "pending"
    return view if view.status == status else view.model_copy(update={"status": status, "ended_at": None})


def _came(moment: Moment, step: int) -> dict[Key, dict[str, Any]]:
    acts = (act for act in (act_of(moment), *settled(moment)) if act and act.step == step and act.task)
    of_requests = {(act.task, act.round): _of_act(act) for act in acts}
    return of_requests | {(one.task, one.round): _of_evidence(one) for one in moment.gathered if one.step == step}


def _of_act(act: Act) -> dict[str, Any]:
    if not act.is_awaited:
        return {}
    failed = FailureView(error_class=act.error.error_class, message=act.error.message) if act.error else None
    return {"status": act.status, "summary": act.summary or "", "error": failed}


def _of_evidence(known: Evidence) -> dict[str, Any]:
    words = summary_of_output(known.output)
    if known.status == "ok":
        return {"status": "ok", "summary": words, "error": None}
    return {"status": "error", "error": FailureView(error_class=str(known.output.get("class", "")), message=words)}


def _over(view: TaskView, at: datetime, came: dict[str, Any] | None) -> TaskView:
    return view.model_copy(update=(came or {"status": "unfinished"}) | {"ended_at": at})


def _in_order(told: Mapping[Key, TaskView]) -> Iterator[TaskView]:
    below = defaultdict[Key | None, list[TaskView]](list)
    for view in sorted(told.values(), key=lambda view: (view.round, not view.is_again)):
        below[_asker(view, told)].append(view)
    yield from _down(None, below)


def _asker(view: TaskView, told: Mapping[Key, TaskView]) -> Key | None:
    return max((key for key in told if key[0] == view.asked_by and key[1] < view.round), default=None)


def _down(asker: Key | None, below: Mapping[Key | None, list[TaskView]]) -> Iterator[TaskView]:
    for view in below.get(asker, ()):
        yield view
        yield from _down(view.key, below)
