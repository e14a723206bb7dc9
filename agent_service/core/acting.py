"""Sends tool requests, decides whether and when a failed attempt is retried, and recognises identical calls.

A pending request is in the state before it leaves. A retry is a new attempt of the same step, for a retryable error
of a read or idempotent command. A write with an unknown outcome is in doubt: a person decides, it is never resent.
"""

import hashlib
import json
from datetime import datetime, timedelta

from agent_service.core.brief import Brief
from agent_service.core.facts import RequestSent, RetrySet
from agent_service.core.grants import granted, with_asked
from agent_service.core.in_flight import with_pending
from agent_service.core.phases import Action, Plan
from agent_service.core.state import RunState, with_facts
from agent_service.core.waiting import Acting, Pending, Waiting
from agent_service.sentences import Text, say
from schemas import subjects
from schemas.catalog import ToolCommand
from schemas.events import ToolError
from schemas.values import replace

ANSWER_GRACE_S = 10.0
"""Longer than the gateway waits, so that its own timeout can still be heard."""
MAX_BACKOFF_S = 120.0
SAME_RESULT_LIMIT = 3
LONGEST_PATH, MOST_NAMED = 120, 20
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def flaws_of_action(brief: Brief, action: Action) -> tuple[Text, ...]:
    skill = brief.skill(action.tool)
    if skill is None:
        offered = ", ".join(s.name for s in brief.skills) or "none"
        return (say("tool_unknown", tool=action.tool[:64], offered=offered),)
    if skill.route in subjects.OUR_OWN_ROUTES and brief.depth >= brief.limits.max_depth:
        return (say("too_deep", tool=action.tool),)
    if brief.command(action) is None:
        commands = ", ".join(c.name for c in skill.commands)
        return (say("command_unknown", tool=action.tool, command=action.command[:64], commands=commands),)
    return ()


def unknown_artifacts(state: RunState, action: Action) -> tuple[Text, ...]:
    command = state.brief.command(action)
    properties = command.input_schema.get("properties") if command else None
    asked = (
        (name, path)
        for name, schema in (properties.items() if isinstance(properties, dict) else ())
        if isinstance(schema, dict) and schema.get("format") == "artifact"
        for path in (action.arguments.get(name),)
    )
    newest = ", ".join(state.artifacts[-MOST_NAMED:]) or "none"
    return tuple(
        say("artifact_unknown", argument=name, path=path[:LONGEST_PATH], newest=newest)
        for name, path in asked
        if isinstance(path, str) and path not in state.artifacts
    )


def dispatch(state: RunState, plan: Plan) -> RunState:
    numbered = enumerate(plan.actions, start=state.step + 1)
    first = tuple([first_attempt(state, step, action) for step, action in numbered])
    begun = replace(state, step=first[-1].step)
    pendings = granted(begun, first)
    return _depart(begun, Acting(pendings=pendings), pendings)


def send(state: RunState, pending: Pending) -> RunState:
    sent = _sent(state, pending)
    return _depart(state, with_pending(state.waiting, sent), (sent,))


def first_attempt(state: RunState, step: int, action: Action, *, task: str = "", asked_in: int = 0) -> Pending:
    skill = state.brief.skill(action.tool)
    assert skill is not None, "the plan was checked against the skills"
    pending = Pending(
        step=step,
        attempt=1,
        action=action,
        route=skill.route,
        requested_at=state.updated_at,
        deadline_at=state.updated_at,
        task=task,
        round=asked_in,
    )
    return _sent(state, pending)


def _sent(state: RunState, pending: Pending) -> Pending:
    at, time_s, end = state.updated_at, _tool_time_s(state.brief, pending), state.brief.limits.deadline_at
    return replace(
        pending,
        requested_at=at,
        deadline_at=at + timedelta(seconds=time_s + ANSWER_GRACE_S),
        until=end if end <= at + timedelta(seconds=time_s) else None,
        untrusted=bool(state.tainted_by),
        retry_at=None,
    )


def until(brief: Brief, pending: Pending) -> datetime:
    if pending.until:
        return pending.until
    patience = timedelta(seconds=_tool_time_s(brief, pending))
    return min(pending.requested_at + patience, brief.limits.deadline_at)


def _depart(state: RunState, waiting: Waiting, pendings: tuple[Pending, ...]) -> RunState:
    summary = say("acts", actions=tuple([_named(one) for one in pendings]))
    attempts = state.attempts + len(pendings)
    sent = with_asked(replace(state, waiting=waiting, attempts=attempts, summary=summary), pendings)
    return with_facts(sent, *[RequestSent(pending=one, approved_by=_approved_by(sent, one)) for one in pendings])


def _approved_by(state: RunState, pending: Pending) -> str:
    if not state.rulings:
        return ""
    rulings = (ruling for ruling in state.rulings if ruling.step == pending.step)
    return next((ruling.by for ruling in rulings if ruling.verdict == "approved"), "")


def retry(state: RunState, pending: Pending, error: ToolError) -> RunState | None:
    limits = state.brief.limits
    if not could_be_retried(state, pending, error) or pending.attempt >= limits.max_attempts:
        return None
    if attempts_left(state) <= 0:
        return None
    delay = timedelta(seconds=_backoff_s(limits.retry_base_s, state.run_id, pending))
    following = replace(pending, attempt=pending.attempt + 1, retry_at=state.updated_at + delay)
    summary = say(
        "retries",
        step=pending.step,
        task=pending.task,
        tool=pending.action.tool,
        error_class=error.error_class,
        attempt=following.attempt,
    )
    waited = replace(state, waiting=with_pending(state.waiting, following), summary=summary)
    return with_facts(waited, RetrySet(pending=following))


def attempts_left(state: RunState) -> int:
    taken = sum(pending.retry_at is not None for pending in state.pendings)
    return state.brief.limits.max_attempts_of_run - state.attempts - taken


def could_be_retried(state: RunState, pending: Pending, error: ToolError) -> bool:
    return error.retryable and pending.grant is None and is_repeatable(state, pending)


def is_repeatable(state: RunState, pending: Pending) -> bool:
    command: ToolCommand | None = state.brief.command(pending.action)
    return command is not None and (command.tier == "read" or command.idempotent)


def repetitions(state: RunState) -> int:
    newest = state.completed[-len(state.plan.actions) :] if state.plan else ()
    return max((_times(state, record.call) for record in newest), default=0)


def is_stuck(state: RunState, action: Action) -> bool:
    many = len(state.completed) >= SAME_RESULT_LIMIT
    return many and _times(state, name_of_call(action)) >= SAME_RESULT_LIMIT


def _times(state: RunState, call: str) -> int:
    since = state.waited_at_step
    outcomes = [record.outcome for record in state.completed if record.call == call and record.step > since]
    return outcomes.count(outcomes[-1]) if outcomes else 0


def name_of_call(action: Action) -> str:
    return digest([action.tool, action.command, action.payload])


def digest(value: object) -> str:
    return hashlib.sha256(_canonical(value).encode()).hexdigest()[:32]


def _backoff_s(base_s: float, run_id: str, pending: Pending) -> float:
    """Doubling, with up to a quarter more per run: derived, so that a replay gives the same."""
    spread = int(digest(_tried(run_id, pending))[:4], 16) / 0xFFFF
    return min(MAX_BACKOFF_S, base_s * float(2 ** (pending.attempt - 1))) * (1 + spread / 4)


def _tried(run_id: str, pending: Pending) -> list[object]:
    sub_request = [pending.task, pending.round] if pending.task else []
    return [run_id, pending.step, pending.attempt, *sub_request]


def _tool_time_s(brief: Brief, pending: Pending) -> float:
    skill = brief.skill(pending.action.tool)
    assert skill is not None, "a pending tool is one of the skills"
    return skill.timeout_s + brief.limits.queue_wait_s


def _named(sent: Pending) -> Text:
    return say("act", step=sent.step, tool=sent.action.tool, command=sent.action.command, attempt=sent.attempt)
