"""Outgoing messages, derived from state and facts alone: byte-identical whenever they are rebuilt."""

from dataclasses import field
from typing import Any, Literal

from pydantic import BaseModel
from pydantic_core import to_json

from agent_service.core import continuing, facts
from agent_service.core.events import EventFacts, SignalReceived, StoodStill, WakeAccepted
from agent_service.core.limits import budget_use
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
ProgressPhase = Literal["accepted", "frame", "plan", "act", "reflect", "compact", "verify", "end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """Message to publish. `key` is its `Nats-Msg-Id`. A `rebuildable` message may be lost, since the journal holds its
    content.
    """

    subject: str
    key: str
    body: bytes
    run_id: str = field(repr=False)
    rebuildable: bool = False
    proves: tuple[str, ...] = field(default=(), repr=False)
    """Request whose capability it carries (`keys.proven`)."""
    changes: bool = field(default=False, repr=False)
    """Requests a change, so it names the caller."""


def outgoing(subject: str, payload: BaseModel | dict[str, Any], key: str, **how: Any) -> OutgoingMessage:
    """`payload`: a model, or its fields in their order, unchecked, since the run's values were. It names its run."""
    if isinstance(payload, BaseModel):
        envelope: wire.Envelope[Any] = wire.Envelope(type=subject, payload=payload, dedupe_key=key)
        run_id, body = envelope.payload.run_id, envelope.body()
    else:
        run_id, body = payload["run_id"], to_json({"type": subject, "payload": payload, "dedupe_key": key})
    return OutgoingMessage(subject=subject, key=key, body=body, run_id=run_id, **how)


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
    if phase := _phase(outcome) if is_newest else None:
        owed.append(progress(state, phase))
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
        owed.append(outgoing(subjects.WAITING, asked, key))
    return owed


# Acceptance and progress


def accepted(event: WakeAccepted) -> OutgoingMessage:
    fields = {"run_id": event.run_id, "wake_id": event.wake_id, "accepted_at": event.at}
    key = keys.dedupe_key(subjects.WAKE_ACCEPTED, event.run_id)
    return outgoing(subjects.WAKE_ACCEPTED, fields, key, rebuildable=True)


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
    return outgoing(subjects.START, start, keys.start(state.wake_id))


def progress(state: RunState, phase: ProgressPhase) -> OutgoingMessage:
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
    return outgoing(subjects.PROGRESS, payload, key, rebuildable=True)


_PHASES: dict[type[Any], ProgressPhase | None] = {
    facts.RunEnded: "end",
    facts.Decided: None,
    facts.RequestSent: "act",
    facts.Ruled: "plan",
    facts.CallPostponed: None,
    facts.AttemptAnswered: "act",
    facts.PersonAsked: "act",
}
"""Phase that a fact reports, the most telling first; None: its own."""


def _phase(outcome: EventFacts) -> ProgressPhase | None:
    """Phase of the progress message of an entry; None for none."""
    for kind, phase in _PHASES.items():
        if kind in outcome.kinds:
            own: Any = outcome.first(kind)
            return phase or own.phase.value
    return "act" if isinstance(outcome.event, StoodStill) else None


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
    return outgoing(subjects.tool_request(pending.route), payload, key, proves=proves, changes=changes)


# People


def reopened(state: RunState, event: SignalReceived, ending_class: str, *, entry: int) -> OutgoingMessage:
    """`ending_class`: of the end that the answer reopened."""
    payload = wire.Reopened(
        run_id=state.run_id,
        by=event.by or "a person",
        answer_to=ending_class,
        message=event.signal.message,
        has_callback=state.brief.callback is not None,
    )
    return outgoing(subjects.REOPENED, payload, keys.dedupe_key(subjects.REOPENED, state.run_id, entry))


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
    return outgoing(subject, kind(**fields), keys.dedupe_key(subject, state.run_id, stop.entry if stop else 0))
