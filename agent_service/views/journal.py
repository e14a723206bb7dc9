"""Entries, timelines and model calls as the API shows them."""

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from agent_service.core.phases import Phase
from agent_service.core.waiting import Status
from agent_service.history.history import History
from agent_service.history.items import Item
from agent_service.history.text import View
from agent_service.history.words import entry_summary
from agent_service.run.journal import Commit, JournalRecord
from agent_service.run.ports import ModelQuestion, PromptText


class EntryView(View):
    """An entry of the journal, with the run's `status` and `pending_step` after it.

    `hash` is that of the stored event, in which the address of a callback is not hidden.
    """

    seq: int
    at: datetime
    kind: str
    summary: str
    status: Status
    pending_step: int | None
    event: dict[str, Any]
    hash: str


class TimelineView(View):
    """Items in order of their beginning, each followed by its parts."""

    run_id: str
    status: Status
    items: tuple[Item, ...]


def timeline_view(run_id: str, history: History) -> TimelineView:
    return TimelineView(run_id=run_id, status=history.status, items=tuple(history.tree()))


def entry_view(record: JournalRecord) -> EntryView:
    entry, stands = record.entry, record.stands
    event: dict[str, Any] = json.loads(entry.event)
    if (event.get("brief") or {}).get("callback"):
        event["brief"]["callback"] = "(hidden)"
    return EntryView(
        seq=entry.seq,
        at=entry.at,
        kind=entry.kind,
        summary=entry_summary(record),
        status=stands.status,
        pending_step=stands.step or None,
        event=event,
        hash=entry.hash,
    )


class CallView(View):
    """One model call, with its `item` of the timeline. `prompt` is rendered again from the state at the time of the
    call; `prompt_note` says why it may differ from the prompt that was sent, and is empty where only the minute in it
    may differ.

    `reply` is the stored event: usage, provenance, the decision and the plan that came along; `outcome` is its summary.
    """

    run_id: str
    call: int
    item: Item
    with_plan: bool
    prompt: PromptText
    prompt_note: str
    reply: dict[str, Any] | None
    outcome: str


def made_call(changes: Sequence[Commit], number: int) -> Item | None:
    """The newest item of the call."""
    calls = [one for one in History(changes).of_kind("phase") if one.call == number and one.id != f"call:{number}:plan"]
    return calls[-1] if calls else None


def question_of(made: Item, changes: Sequence[Commit]) -> ModelQuestion:
    """`changes`: all of the run."""
    state, now = changes[made.about["asked_in"] - 1].state, made.about["asked_at"]
    phase = made.phase or Phase.PLAN
    return ModelQuestion(state=state, call=made.call or 0, phase=phase, now=now)


def call_view(
    changes: Sequence[Commit], number: int, prompt_of: Callable[[ModelQuestion], PromptText]
) -> CallView | None:
    """None if the run made no such call."""
    made = made_call(changes, number)
    if made is None:
        return None
    question, last = question_of(made, changes), changes[made.ended_in - 1] if made.ended_in else None
    prompt = prompt_of(question)
    return CallView(
        run_id=question.state.run_id,
        call=question.call,
        item=made,
        with_plan=question.with_plan,
        prompt=prompt,
        prompt_note=_why_it_may_differ(made, prompt.version),
        reply=json.loads(last.entry.event) if last and made.thought else None,
        outcome=entry_summary(last) if last else "there is no reply yet",
    )


def _why_it_may_differ(made: Item, version: str) -> str:
    sent = made.about.get("prompt_hash", "")
    if made.thought:
        provenance = made.thought.reply.provenance
        sent = provenance.prompt_hash if provenance else ""
        if not sent:
            return "no prompt was sent: a script answered. This is what a model would have been told"
    if sent and sent != version:
        return f"it was made with other templates ({sent}) than those of this version ({version})"
    return ""
