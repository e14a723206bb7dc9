"""Outgoing messages, derived from state and facts alone: byte-identical whenever they are rebuilt."""

from dataclasses import field
from typing import Any

from pydantic import BaseModel

from agent_service.core import continuing, facts
from agent_service.core.events import EventFacts, SignalReceived, StoodStill, WakeAccepted
from agent_service.core.state import RunState
from agent_service.core.waiting import Ended, NeedsPerson, Pending, Status
from agent_service.run.human_tasks import human_task, remedy
from schemas import events as wire
from schemas import keys, subjects
from schemas.catalog import UNNAMED
from schemas.fields import DoneItem
from schemas.values import dataclass

LONGEST_GOAL = 200
"""Characters of a goal in its announcement; the run keeps all of it."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """Message to publish. `key` is its `Nats-Msg-Id`. `payload`: fields of its model, in their order. A `rebuildable`
    message may be lost, since the journal holds its content.
    """

    subject: str
    key: str
    payload: dict[str, Any]
    run_id: str = field(repr=False)
    rebuildable: bool = False
    proves: tuple[str, ...] = field(default=(), repr=False)
    """Request whose capability it carries (`keys.proven`)."""
    changes: bool = field(default=False, repr=False)
    """Requests a change, so it names the caller."""


def of_entry(state: RunState, outcome: EventFacts, entry: int) -> list[OutgoingMessage]:
    """Messages of an entry; none for a late result. `state`: the run after it, or later; then only those messages that
    are not `outstanding`, and no progress.
    """
    is_newest = entry == state.version
    if is_newest and isinstance(state.waiting, Ended) and facts.RunEnded not in outcome.kinds:
        return []
    event, owed = outcome.event, list[OutgoingMessage]()
    if isinstance(event, WakeAccepted):
        owed += [accepted(event), *([announcement(state)] if event.brief.announced else ())]
    elif isinstance(event, SignalReceived):
        owed += [reopened(state, event, one.ending_class, entry=entry) for one in outcome.all(facts.RunReopened)]
    if report := progress(state, outcome) if is_newest else None:
        owed.append(report)
    for fact in outcome.facts if is_newest else ():
        if isinstance(fact, facts.RequestSent):
            owed.append(request(state, fact.pending))
        elif isinstance(fact, facts.PersonAsked | facts.RunEnded):
            owed += _stopped(state)
    return owed


def outstanding(state: RunState) -> list[OutgoingMessage]:
    """Messages that the current state owes."""
    queued = state.status is Status.QUEUED and state.brief.announced
    requests = (request(state, pending) for pending in state.sent)
    return [*([announcement(state)] if queued else ()), *_stopped(state), *requests]


def _stopped(state: RunState) -> list[OutgoingMessage]:
    owed = [ending(state)] if state.stop else []
    if asked := human_task(state):
        paused = state.waiting if isinstance(state.waiting, NeedsPerson) else state.stop
        key = keys.dedupe_key(subjects.WAITING, state.run_id, paused.entry if paused else 0)
        owed.append(OutgoingMessage(subjects.WAITING, key, asked.model_dump(by_alias=True), state.run_id))
    return owed


# Acceptance and progress


def accepted(event: WakeAccepted) -> OutgoingMessage:
    fields = {"run_id": event.run_id, "wake_id": event.wake_id, "accepted_at": event.at}
    key = keys.dedupe_key(subjects.WAKE_ACCEPTED, event.run_id)
    return OutgoingMessage(subjects.WAKE_ACCEPTED, key, fields, event.run_id, rebuildable=True)


def announcement(state: RunState) -> OutgoingMessage:
    """The `agentic.start` of a run from the wake API, without context and callback, which may be large or secret."""
    goal, granted = state.brief.goal, state.brief.limits
    unless_none = {name: getattr(granted, name) or None for name in ("max_steps", "max_tokens", "max_cost_usd")}
    start = wire.AgenticStart(
        goal=goal if len(goal) <= LONGEST_GOAL else f"{goal.strip()[: LONGEST_GOAL - 1]}…",
        # a child may have 0 left, which is not a valid constraint
        constraints=wire.Constraints(**unless_none, max_reframes=granted.max_reframes, deadline_at=granted.deadline_at),
        run_id=state.run_id,
        wake_id=state.wake_id,
        parent_run_id=state.brief.parent.run_id if state.brief.parent else None,
        depth=state.brief.depth,
    )
    return OutgoingMessage(subjects.START, keys.start(state.wake_id), start.model_dump(), state.run_id)


_PHASES: dict[type[Any], str | None] = {
    facts.RunEnded: "end",
    facts.Decided: None,
    facts.RequestSent: "act",
    facts.Ruled: "plan",
    facts.CallPostponed: None,
    facts.AttemptAnswered: "act",
    facts.PersonAsked: "act",
}
"""Phase that a fact reports, the most telling first; None: its own."""


def progress(state: RunState, outcome: EventFacts) -> OutgoingMessage | None:
    """None for an entry that reports no phase."""
    first: Any = outcome.first
    phase = "act" if isinstance(outcome.event, StoodStill) else None
    for kind, named in _PHASES.items():
        if kind in outcome.kinds:
            phase = named or first(kind).phase.value
            break
    if phase is None:
        return None
    done = [item for item in state.done_items if item.evidence]
    payload = {
        "run_id": state.run_id,
        "seq": state.version,
        "phase": phase,
        "step": state.step,
        "status": state.status,
        "summary": str(state.summary),
        "definition_of_done": {"done": len(done), "total": len(state.done_items)},
        "budget": budget_use(state),
        "trace_url": state.brief.trace_url,
    }
    key = keys.dedupe_key(subjects.PROGRESS, state.run_id, state.version)
    return OutgoingMessage(subjects.PROGRESS, key, payload, state.run_id, rebuildable=True)


def budget_use(state: RunState) -> dict[str, Any]:
    limits, spent = state.brief.limits, state.spent
    return {
        "steps": state.step + spent.child_steps,
        "max_steps": limits.max_steps,
        "reframes": state.reframes,
        "max_reframes": limits.max_reframes,
        "tokens": spent.tokens,
        "max_tokens": limits.max_tokens,
        "cost_usd": spent.cost_usd,
        "max_cost_usd": limits.max_cost_usd,
        "lost_tokens": spent.lost_tokens,
        "lost_cost_usd": spent.lost_cost_usd,
        "deadline_at": limits.deadline_at,
    }


# Requests


def request(state: RunState, pending: Pending) -> OutgoingMessage:
    action = continuing.action_as_sent(state, pending)
    task, asked_in = pending.task or None, pending.round or None
    command, skill = state.brief.command(action), state.brief.skill(action.tool)
    payload = {
        "run_id": state.run_id,
        "step": pending.step,
        "tool": action.tool,
        "tool_command": action.command,
        "tool_payload": action.payload,
        "requested_at": pending.requested_at,
        "attempt": pending.attempt,
        "deadline_at": pending.until,
        "executor": skill.executor if skill and skill.executor != UNNAMED else None,
        **({"task": task, "round": asked_in} if task else {}),
        **({"untrusted": True} if pending.untrusted else {}),
    }
    key = keys.request(state.run_id, pending.step, pending.attempt, task, asked_in)
    proves = keys.capability_fields(state.run_id, pending.step, pending.attempt, action.tool, task, asked_in)
    changes = command is not None and command.tier == "write"
    subject = f"{subjects.TOOL_REQUEST}.{pending.route}"
    return OutgoingMessage(subject, key, payload, state.run_id, proves=proves, changes=changes)


# People


def reopened(state: RunState, event: SignalReceived, ending_class: str, *, entry: int) -> OutgoingMessage:
    """`ending_class`: of the end that the answer reopened."""
    payload = {
        "run_id": state.run_id,
        "has_callback": state.brief.callback is not None,
        "by": event.by or "a person",
        "answer_to": ending_class,
        "message": event.signal.message,
    }
    key = keys.dedupe_key(subjects.REOPENED, state.run_id, entry)
    return OutgoingMessage(subjects.REOPENED, key, payload, state.run_id)


_ENDINGS: dict[Status, tuple[str, type[BaseModel]]] = {
    Status.DONE: (subjects.COMPLETED, wire.Completed),
    Status.FAILED: (subjects.FAILED, wire.Failed),
    Status.CANCELLED: (subjects.CANCELLED, wire.Cancelled),
}


def ending(state: RunState) -> OutgoingMessage:
    brief, stop = state.brief, state.stop
    spent = stop.spent if stop else state.spent
    fields: dict[str, Any] = {
        "run_id": state.run_id,
        "goal": brief.goal,
        "usage": wire.Usage(tokens=spent.tokens, cost_usd=spent.cost_usd),
        "trace_url": brief.trace_url,
        "has_callback": brief.callback is not None,
    }
    if state.status is Status.DONE:
        fields |= {"outcome": str(state.reason), "steps_taken": state.step, "artifacts": state.artifacts}
        fields |= {"started_at": state.started_at, "completed_at": state.ended_at}
        fields["definition_of_done"] = [DoneItem.model_validate(i, from_attributes=True) for i in state.done_items]
    else:
        now = remedy(state) if state.ending_class == "in_doubt" else None
        reason = f"{str(state.reason).rstrip('.')}. What to do now: {now}" if now else str(state.reason)
        fields |= {"reason": reason, "ending_class": state.ending_class, "step": state.step}
    subject, kind = _ENDINGS.get(state.status, (subjects.ESCALATED, wire.Escalated))
    if kind is wire.Escalated:
        fields["resumable"] = state.status is Status.PAUSED
    key = keys.dedupe_key(subject, state.run_id, stop.entry if stop else 0)
    return OutgoingMessage(subject, key, kind(**fields).model_dump(by_alias=True), state.run_id)
