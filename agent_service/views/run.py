"""Runs as the API shows them. Texts of models and tools are as they came; the reader of the JSON escapes them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any

from pydantic import Field, JsonValue, computed_field

from agent_service.core.limits import budget_use
from agent_service.core.people import reopenable_until
from agent_service.core.state import Child, RunState
from agent_service.core.waiting import Ended, Status
from agent_service.history.history import History
from agent_service.history.items import Item, as_tree
from agent_service.history.results import result_of
from agent_service.history.text import View
from agent_service.history.words import WaitReason, executor_of, waiting_for
from agent_service.run.human_tasks import OpenTask, Remedy, open_task, remedy
from agent_service.run.journal import JournalRecord
from agent_service.trust.identity import trace_id
from schemas.catalog import ChildUsage
from schemas.fields import BudgetUse, DoneItem


class UsageView(ChildUsage):
    """What the run's model calls cost; `cost_usd` is null when a price is not known.

    `cache_read_tokens` is the part of the input that came from the provider's cache. `lost_…` is what was set aside for
    calls whose reply was never heard (a crash, a cancel): perhaps paid, and counted against the limits.
    """

    tokens: int
    steps: Annotated[int, Field(exclude=True)] = 0


class PendingView(View):
    """The attempt whose result the run waits for; with `retry_at`, the attempt that is sent then.

    `task` and `round` are of a sub-request of the step, null for its own request.

    `executor` is who was asked for it, by the route of that name; null where it tells no name. It was asked at
    `requested_at` and is given up at `deadline_at`. `present` says whether the executor answered when it was last asked
    for its tools, and is null where that is not known; `trouble` is what it says is wrong with it, as with its Ductile.
    """

    step: int
    task: str | None
    round: int | None
    tool: str
    command: str
    attempt: int
    route: str
    executor: str | None
    requested_at: datetime
    deadline_at: datetime
    retry_at: datetime | None
    present: bool | None = None
    trouble: str = ""


class RunView(View):
    """One run. `class` names its ending or why it pauses; `steps` are those of its timeline, the
    pending ones too.

    `pendings` are the attempts whose results it waits for: several while reads or tasks run side by side;
    `pending` is the first.

    `models` are those that replied, as they name themselves; null where the journal was not asked. `asks` is what a
    person is asked, as `agent.waiting` says it. `reopened` counts the answers that set it going again after an end;
    until `reopens_until` an answer does so, null where none does.

    `parent_run_id` is the run that started it, or that a caller named as such; `depth` is how many agents called each
    other to get here; `children` are the runs that it started as a step, or as the task of one. `caller` is who asked
    for it, such as `token ci` or `bus`; empty where the API has no tokens.

    `stopped`: by whom, since when and why everything is stopped, this run too; empty while it goes on or has ended.
    """

    run_id: str
    status: Status

    @computed_field  # type: ignore[prop-decorator] # as pydantic documents it
    @property
    def state(self) -> Status:
        return self.status

    parent_run_id: str | None
    depth: int
    children: tuple[Child, ...]
    wake_id: str
    caller: str
    accepted_at: datetime
    started_at: datetime | None
    updated_at: datetime
    ended_at: datetime | None
    goal: str
    summary: str
    outcome: str
    reason: str
    ending_class: str = Field(alias="class")
    remedy: Remedy | None = None
    steps: tuple[Item, ...]
    definition_of_done: tuple[DoneItem, ...]
    budget: BudgetUse
    usage: UsageView
    pending: PendingView | None = None
    pendings: tuple[PendingView, ...] = ()
    waiting_for: WaitReason | None = None
    asks: OpenTask | None = None
    reopened: int
    reopens_until: datetime | None = None
    artifacts: tuple[str, ...]
    models: tuple[str, ...] | None
    trace_id: str
    trace_url: str | None
    stopped: str = ""


_TIMES = ("accepted_at", "started_at", "updated_at", "ended_at")
_AS_IT_IS = ("run_id", "wake_id", "status", "reopened", "artifacts", *_TIMES)


def run_view(
    run: RunState,
    history: History | None = None,
    *,
    trace_url: str | None = None,
    present: frozenset[str] | None = None,
    trouble: str = "",
) -> RunView:
    """`history` adds steps and models. `trace_url` has `{trace_id}` in its place."""
    return RunView(
        **{name: getattr(run, name) for name in _AS_IT_IS},
        parent_run_id=run.brief.parent.run_id if run.brief.parent else None,
        depth=run.brief.depth,
        children=run.children,
        caller=run.brief.caller,
        goal=run.brief.goal,
        summary=str(run.summary),
        outcome=str(run.outcome),
        reason=str(run.reason),
        ending_class=run.ending_class,
        steps=tuple(sorted(history.of_kind("step"), key=attrgetter("step"))) if history else (),
        definition_of_done=tuple(DoneItem.model_validate(item, from_attributes=True) for item in run.done_items),
        budget=BudgetUse(**budget_use(run)),
        usage=UsageView.model_validate(run.spent, from_attributes=True),
        models=tuple(history.models) if history else None,
        trace_id=trace_id(run.run_id),
        trace_url=trace_url.replace("{trace_id}", trace_id(run.run_id)) if trace_url else None,
        **({} if run.status is Status.DONE else _of_what_is_not_done(run, present, trouble)),
    )


def _of_what_is_not_done(run: RunState, present: frozenset[str] | None, trouble: str) -> dict[str, Any]:
    pendings = pending_views(run, present, trouble)
    told = {"waiting_for": waiting_for(run), "asks": open_task(run), "reopens_until": reopens_until(run)}
    return told | {"remedy": remedy(run), "pending": next(iter(pendings), None), "pendings": pendings}


def reopens_until(run: RunState) -> datetime | None:
    waiting = run.waiting
    return reopenable_until(run, waiting) if isinstance(waiting, Ended) and waiting.status is Status.ESCALATED else None


_OF_PENDING = ("step", "attempt", "route", "requested_at", "deadline_at", "retry_at")


def pending_views(run: RunState, present: frozenset[str] | None, trouble: str) -> tuple[PendingView, ...]:
    """`present`: executors that answered the last catalog query; `trouble` is of the first."""
    views = list[PendingView]()
    for pending in run.pendings:
        executor = executor_of(run, pending)
        view = PendingView(
            **{name: getattr(pending, name) for name in _OF_PENDING},
            task=pending.task or None,
            round=pending.round or None,
            tool=pending.action.tool,
            command=pending.action.command,
            executor=executor,
            present=None if present is None or executor is None else executor in present,
            trouble="" if views else trouble,
        )
        views.append(view)
    return tuple(views)


class PartView(View):
    """The step, a task that its tool asked for before it could answer, an attempt, or a wait between two.

    `about`: of the step and of tasks. `arguments`; `approved_by`, the person who allowed it, null where none had to;
    of the step, `route`, `expected`, `risk` and `rationale`; of a task, `query`, `reason`, why it was asked for, and
    `needs`, the tasks before it. `result`: all that the tool brought.
    """

    item: Item
    about: dict[str, Any]
    result: dict[str, JsonValue] | None


class StepDetail(View):
    """One step in full, each of its `parts` followed by its own. `executor` is who was asked, null where it tells no
    name.
    """

    run_id: str
    executor: str | None
    parts: tuple[PartView, ...]


def items_of_step(history: History, step: int) -> list[Item]:
    """Each followed by its parts."""
    return as_tree([item for item in history.by_id.values() if item.step == step and item.kind != "phase"])


def step_detail(run: RunState, items: Sequence[Item], answers: Mapping[int, JournalRecord]) -> StepDetail:
    """`answers`: the entries that `items` were answered in, by number."""
    skill = run.brief.skill(items[0].tool or "")
    parts = tuple(_part(item, answers.get(item.answered_in)) for item in items)
    return StepDetail(run_id=run.run_id, executor=skill.executor if skill else None, parts=parts)


def _part(item: Item, answer: JournalRecord | None) -> PartView:
    result = result_of(answer, item.step or 0) if answer and item.kind == "attempt" else None
    brought = result.result.model_dump(mode="json", exclude_none=True) if result and result.result else None
    return PartView(item=item, about=item.about, result=brought)
