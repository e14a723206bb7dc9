"""The inbox of people: runs that stopped, and dead letters."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from agent_service.core.state import RunState
from agent_service.core.waiting import Approval, Question, Status, Stop
from agent_service.errors import Damaged
from agent_service.history.plain import View, clipped
from agent_service.run.asks import RAISED_BY, Remedy, remedy
from agent_service.run.lines import waits_for
from agent_service.views.letters import DeadLetter, obstacle
from agent_service.views.run import AsksView, asks_view, reopens_until
from schemas.envelope import RUN_ID

MAX_TITLE = 200

ItemKind = Literal["approval", "question", "in_doubt", "escalated", "paused", "dead_letter"]
Action = Literal[
    "approve",
    "reject",
    "answer",
    "resume",
    "raise_budget",
    "cancel",
    "start_again",
    "dismiss",
    "retry",
    "discard",
]
"""What a person may do, the usual action first."""


class InboxItem(View):
    """One card. `run_id` names the run, `seq` the dead letter; `text` is the reason, `class` the word for it.

    `asks` is what a person is asked, in full.
    """

    id: str
    kind: ItemKind
    run_id: str | None
    seq: int | None = None
    since: datetime
    title: str
    text: str
    item_class: str = Field(alias="class")
    asks: AsksView | None = None
    remedy: Remedy | None
    actions: tuple[Action, ...]


class InboxView(View):
    """Newest first. `total` counts all that waits; `trouble` says why dead letters are missing here, if they are."""

    items: tuple[InboxItem, ...]
    total: int
    trouble: str = ""


def of_run(run: RunState, at: datetime) -> InboxItem:
    asks, waits = asks_view(run), waits_for(run)
    return InboxItem(
        id=f"run:{run.run_id}",
        kind=_kind(run, asks),
        run_id=run.run_id,
        since=run.ended_at or (waits.since if waits else run.updated_at),
        title=clipped(run.brief.goal, MAX_TITLE),
        text=asks.question or asks.reason if asks else str(run.reason),
        item_class=run.ending_class or (asks.kind if asks else ""),
        asks=asks,
        remedy=remedy(run),
        actions=actions_for(run, at),
    )


def _kind(run: RunState, asks: AsksView | None) -> ItemKind:
    if asks and asks.kind in ("approval", "question"):
        return "approval" if asks.kind == "approval" else "question"
    if run.status is Status.PAUSED:
        return "paused"
    return "in_doubt" if run.ending_class == "in_doubt" else "escalated"


def of_damaged_run(damaged: Damaged, since: datetime) -> InboxItem:
    return InboxItem(
        id=f"run:{damaged.run_id}",
        kind="escalated",
        run_id=damaged.run_id,
        since=since,
        title=damaged.run_id,
        text=str(damaged),
        item_class="damaged",
        remedy=None,
        actions=(),
    )


def actions_for(run: RunState, at: datetime) -> tuple[Action, ...]:
    match run.ask:
        case Approval():
            return ("approve", "reject", "cancel")
        case Question():
            return ("answer", "cancel")
        case Stop():
            return ("raise_budget" if run.ending_class in RAISED_BY else "resume", "cancel")
    until = reopens_until(run)
    if until is None:
        return ()
    return ("answer", "start_again", "dismiss") if at <= until else ("start_again", "dismiss")


def of_letter(letter: DeadLetter) -> InboxItem:
    why = obstacle(letter)
    again = Remedy(text="mend what it names, then send it again", command=f"agentic dlq retry {letter.id}")
    gone = Remedy(text=why, command=f"agentic dlq drop {letter.id}")
    return InboxItem(
        id=f"letter:{letter.id}",
        kind="dead_letter",
        run_id=letter.headers.get(RUN_ID),
        seq=letter.id,
        since=letter.buried,
        title=clipped(f"A message on {letter.subject} could not be handled", MAX_TITLE),
        text=letter.said("Reason"),
        item_class="dead_letter",
        remedy=gone if why else again,
        actions=("discard",) if why else ("retry", "discard"),
    )
