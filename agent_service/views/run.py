"""Runs and steps as the API shows them. Texts of models and tools are not escaped; readers of the JSON do that."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any

from pydantic import Field, JsonValue, computed_field

from agent_service.core.state import Child, RunState
from agent_service.core.waiting import Pending, Status
from agent_service.history.history import History
from agent_service.history.items import Item, as_tree
from agent_service.history.results import result_of
from agent_service.history.text import View
from agent_service.history.words import WaitReason, executor_of, waiting_for
from agent_service.run.human_tasks import OpenTask, Remedy, open_task, remedy
from agent_service.run.journal import JournalRecord
from agent_service.run.messages import budget_use
from agent_service.trust.identity import trace_id
from schemas.catalog import ChildUsage
from schemas.fields import BudgetUse, DoneItem


class UsageView(ChildUsage):
    """Usage of the run's model calls; `cost_usd` is null if a price is not known.

    `cache_read_tokens` is the part of the input that came from the provider's cache. `lost_…` was reserved for calls
    without a recorded reply (a crash, a cancel): it may have been paid, and counts against the limits.
    """

    tokens: int
    steps: Annotated[int, Field(exclude=True)] = 0


class PendingView(View):
    """An attempt that the run waits for; with `retry_at`, the attempt that will be sent then.

    `task` and `round` name a sub-request of the step, and are null for its own request.

    `executor` was asked at `requested_at` and has until `deadline_at`; it is null if it gives no name. `present` is
    true if it answered the last catalog query, and null if that is not known; `trouble` is its own report, such as a
    failing Ductile.
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
    """One run. `class` names its ending, or the reason of its pause; `steps` are the step items of its timeline.

    `pendings` are the attempts it waits for, several while reads or tasks run in parallel; `pending` is the first.

    `models` are the names of the models that replied. `asks` is the request to a person, as in `agent.waiting`.
    `reopened` counts the answers that reopened the run; an answer reopens it until `reopens_until`, null if none can.

    `parent_run_id` is the run that started it, or that its caller named; `depth` is its level in the tree of agents;
    `children` are the runs that its steps and tasks started. `caller` asked for the run, such as `token ci` or `bus`;
    it is empty if the API has no tokens.

    `stopped` says by whom, since when and why everything is stopped; it is empty if nothing is, and after the end.
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
    models: tuple[str, ...]
    trace_id: str
    trace_url: str | None
    stopped: str = ""


_TIMES = ("accepted_at", "started_at", "updated_at", "ended_at")
_SAME_NAMES = ("run_id", "wake_id", "status", "reopened", "reopens_until", "artifacts", *_TIMES)


def run_view(run: RunState, history: History, *, present: frozenset[str] | None = None, trouble: str = "") -> RunView:
    """`present`: executors that answered the last catalog query. `trouble` is that of the first attempt."""
    pendings = tuple(_pending_view(run, one, present, trouble if one is run.pending else "") for one in run.pendings)
    return RunView(
        **{name: getattr(run, name) for name in _SAME_NAMES},
        parent_run_id=run.brief.parent.run_id if run.brief.parent else None,
        depth=run.brief.depth,
        children=run.children,
        caller=run.brief.caller,
        goal=run.brief.goal,
        summary=str(run.summary),
        outcome=str(run.reason) if run.status is Status.DONE else "",
        reason=str(run.reason),
        ending_class=run.ending_class,
        remedy=remedy(run),
        steps=tuple(sorted(history.of_kind("step"), key=attrgetter("step"))),
        definition_of_done=tuple(DoneItem.model_validate(item, from_attributes=True) for item in run.done_items),
        budget=BudgetUse(**budget_use(run)),
        usage=UsageView.model_validate(run.spent, from_attributes=True),
        pending=next(iter(pendings), None),
        pendings=pendings,
        waiting_for=waiting_for(run),
        asks=open_task(run),
        models=tuple(history.models),
        trace_id=trace_id(run.run_id),
        trace_url=run.brief.trace_url,
    )


_PENDING_NAMES = ("attempt", "route", "requested_at", "deadline_at", "retry_at")


def _pending_view(run: RunState, pending: Pending, present: frozenset[str] | None, trouble: str) -> PendingView:
    executor = executor_of(run, pending.action.tool)
    return PendingView(
        **{name: getattr(pending, name) for name in _PENDING_NAMES},
        **pending.correlation,
        tool=pending.action.tool,
        command=pending.action.command,
        executor=executor,
        present=None if present is None or executor is None else executor in present,
        trouble=trouble,
    )


class PartView(View):
    """The step, a task that its tool asked for first, an attempt, or a wait between two attempts.

    `about` of steps and tasks has `arguments` and `approved_by`, null if no approval was needed; of the step also
    `route`, `expected`, `risk` and `rationale`; of a task `query`, `reason` and `needs`, the tasks before it. `result`
    is the whole result of the tool.
    """

    item: Item
    about: dict[str, Any]
    result: dict[str, JsonValue] | None


class StepDetail(View):
    """One step in full; each of its `parts` is followed by its own parts. `executor` is null if it gives no name."""

    run_id: str
    executor: str | None
    parts: tuple[PartView, ...]


def items_of_step(history: History, step: int) -> list[Item]:
    return as_tree([item for item in history.by_id.values() if item.step == step and item.kind != "phase"])


def step_detail(run: RunState, items: Sequence[Item], answers: Mapping[int, JournalRecord]) -> StepDetail:
    """`answers`: entries with the answers of `items`, by number."""
    parts = tuple(_part(item, answers.get(item.answered_in)) for item in items)
    return StepDetail(run_id=run.run_id, executor=executor_of(run, items[0].tool or ""), parts=parts)


def _part(item: Item, answer: JournalRecord | None) -> PartView:
    result = result_of(answer, item.step or 0) if answer and item.kind == "attempt" else None
    brought = result.result.as_json() if result and result.result else None
    return PartView(item=item, about=item.about, result=brought)
