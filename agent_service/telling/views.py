"""Runs and entries as the API shows them: frozen pydantic models, made from states and moments. Pure.

Texts of models and tools are shown as they are: JSON carries them, and who shows them to people makes them fit.
`summary` of an entry is such a text made fit already.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic import Field

from agent_service.core.events import ModelReplied
from agent_service.core.limits import budget_use
from agent_service.core.phases import Phase
from agent_service.core.remedies import remedy
from agent_service.core.state import RunState
from agent_service.core.waiting import Status
from agent_service.journal import Entry
from agent_service.ports import RunLine
from agent_service.telling.moments import Moment, retell
from agent_service.telling.sayings import say
from agent_service.telling.step_views import PendingView, StepView, View, pending_view, step_views
from agent_service.trace import trace_id
from agent_service.trace import trace_url as address_of_trace
from schemas.events import BudgetUse, DoneItem, Instant


class AskingView(View):
    """The model call that the run waits for; with `retry_at`, the call that is made then."""

    call: int
    phase: Phase
    retry_at: Instant | None


class UsageView(View):
    """What the run's model calls cost; `cost_usd` is null when a price is not known.

    `cache_read_tokens` is the part of the input that came from the provider's cache. `lost_…` is what was set aside for
    calls whose reply was never heard (a crash, a cancel): perhaps paid, and counted against the limits.
    """

    calls: int
    input_tokens: int
    output_tokens: int
    tokens: int
    cost_usd: float | None
    cache_read_tokens: int
    lost_calls: int
    lost_tokens: int
    lost_cost_usd: float | None


class RemedyView(View):
    """What a person does now about a run that stopped, and the command with which it goes on."""

    text: str
    command: str


class RunView(View):
    """One run. `state` is its status; `class` names its ending or why it pauses; `steps` has the pending one too.

    `models` are those that replied, as they name themselves; null where the journal was not asked.
    """

    run_id: str
    wake_id: str
    state: Status
    accepted_at: Instant
    started_at: Instant | None
    updated_at: Instant
    ended_at: Instant | None
    goal: str
    summary: str
    outcome: str
    reason: str
    ending_class: str = Field(alias="class")
    remedy: RemedyView | None
    steps: tuple[StepView, ...]
    definition_of_done: tuple[DoneItem, ...]
    budget: BudgetUse
    usage: UsageView
    pending: PendingView | None
    asking: AskingView | None
    artifacts: tuple[str, ...]
    models: tuple[str, ...] | None
    trace_id: str
    trace_url: str | None


class RunLineView(View):
    """A run in a list. `damaged`: what of it cannot be read, so that it is left alone; empty where all is well."""

    run_id: str
    wake_id: str
    state: Status
    goal: str
    summary: str
    accepted_at: Instant
    updated_at: Instant
    damaged: str = ""


class EntryView(View):
    """An entry of the journal. `status` and `pending_step` are the run's after it, `event` is what happened."""

    seq: int
    at: Instant
    kind: str
    summary: str
    status: Status
    pending_step: int | None
    event: dict[str, Any]
    hash: str


def run_view(
    run: RunState,
    entries: Sequence[Entry] | None = None,
    *,
    trace_url: str | None = None,
    present: frozenset[str] | None = None,
    trouble: str = "",
) -> RunView:
    """The run. `trace_url` is where a trace is shown, with `{trace_id}` in its place; `present`: see `pending_view`."""
    now = remedy(run)
    return RunView(
        run_id=run.run_id,
        wake_id=run.wake_id,
        state=run.status,
        accepted_at=run.accepted_at,
        started_at=run.started_at,
        updated_at=run.updated_at,
        ended_at=run.ended_at,
        goal=run.brief.goal,
        summary=run.summary,
        outcome=run.outcome,
        reason=run.reason,
        ending_class=run.ending_class,
        remedy=RemedyView(text=now.text, command=now.command) if now else None,
        steps=tuple(step_views(run, entries or ())),
        definition_of_done=tuple(
            DoneItem(id=i.id, text=i.text, done=i.done, evidence=i.evidence) for i in run.done_items
        ),
        budget=budget_use(run),
        usage=_usage(run),
        pending=pending_view(run, run.pending, present, trouble) if run.pending else None,
        asking=_asking(run),
        artifacts=run.artifacts,
        models=_models(entries) if entries is not None else None,
        trace_id=trace_id(run.run_id),
        trace_url=address_of_trace(trace_url, run.run_id),
    )


def line_view(line: RunLine) -> RunLineView:
    return RunLineView(
        run_id=line.run_id,
        wake_id=line.wake_id,
        state=line.status,
        goal=line.goal,
        summary=line.summary,
        accepted_at=line.accepted_at,
        updated_at=line.updated_at,
        damaged=line.damaged,
    )


def entry_view(moment: Moment) -> EntryView:
    entry, pending = moment.entry, moment.after.pending
    return EntryView(
        seq=entry.seq,
        at=entry.at,
        kind=entry.kind,
        summary=say(moment),
        status=moment.after.status,
        pending_step=pending.step if pending else None,
        event=json.loads(entry.event),
        hash=entry.hash,
    )


def entry_views(entries: Iterable[Entry], after: int = 0) -> Iterator[EntryView]:
    """The entries after number `after`, of a journal from its first entry on."""
    return (entry_view(moment) for moment in retell(entries) if moment.entry.seq > after)


def _models(entries: Iterable[Entry]) -> tuple[str, ...]:
    """Each model once, in the order of its first reply."""
    replies = (entry.decoded() for entry in entries if entry.kind == ModelReplied.__name__)
    return tuple(dict.fromkeys(reply.model for reply in replies if isinstance(reply, ModelReplied)))


def _usage(run: RunState) -> UsageView:
    spent = run.spent
    return UsageView(
        calls=spent.calls,
        input_tokens=spent.input_tokens,
        output_tokens=spent.output_tokens,
        tokens=spent.tokens,
        cost_usd=spent.cost_usd,
        cache_read_tokens=spent.cache_read_tokens,
        lost_calls=spent.lost_calls,
        lost_tokens=spent.lost_tokens,
        lost_cost_usd=spent.lost_cost_usd,
    )


def _asking(run: RunState) -> AskingView | None:
    asking = run.asking
    return AskingView(call=asking.call, phase=asking.phase, retry_at=run.retry_at) if asking else None
