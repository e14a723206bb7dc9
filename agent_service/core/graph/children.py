"""Children: runs that a run starts as its steps.

A child is one level deeper than its parent, with no other tools, no more than its grant, and no later deadline. It
takes over the parent's taint, in-doubt writes and refusals. Its id follows from parent and step, so it starts once.
"""

import hashlib
import json
import sys
from collections.abc import Sequence

from pydantic import JsonValue, ValidationError
from ulid import ULID

from agent_service.core.brief import Brief, Grant, Limits, Parent
from agent_service.core.events import WakeAccepted
from agent_service.core.graph import grants
from agent_service.core.graph.gathered import as_sent
from agent_service.core.people import egress
from agent_service.core.phases import Action
from agent_service.core.state import Ruling, RunState, replace
from agent_service.core.tools.attempts import Gathering, Pending
from agent_service.core.tools.flights import flights, gatherings
from schemas import catalog, subjects
from schemas.catalog import AgentCall, ToolOffer
from schemas.clipping import clipped
from schemas.fields import flaws_of as flaws_of_fields

DEPTH = "agentic_depth"
"""The field of a start's context with its recursion depth."""
MAX_CONTEXT, LEAST_EVIDENCE = 8000, 50
"""Characters of a context in a prompt, and the fewest worth keeping of one task's result."""
WAKE_PREFIX = "child:"


def skills_of(brief: Brief, offered: Sequence[ToolOffer]) -> tuple[ToolOffer, ...]:
    return tuple(
        skill
        for skill in offered
        if (brief.tools is None or skill.name in brief.tools) and (brief.may_have_children or not is_agent(skill))
    )


def is_agent(skill: ToolOffer | None) -> bool:
    return skill is not None and (skill.name, skill.route) == (catalog.NAME, subjects.SERVICE_AGENT)


def is_asked_by(brief: Brief, action: Action) -> bool:
    return action.tool == catalog.NAME and is_agent(brief.skill(action.tool))


def flaws_of(state: RunState, actions: Sequence[Action]) -> tuple[str, ...]:
    asked = [action for action in actions if is_asked_by(state.brief, action)]
    if not asked:
        return ()
    flaws = [flaw for action in asked for flaw in flaws_of_call(state.brief, action)]
    most = state.brief.limits.max_children
    if len(asked) > most:
        flaws.append(f"{len(asked)} agents are asked for, and at most {most} may work at the same time")
    if not flaws and (why := grants.lacking(replace(state, step=state.step + len(actions)), asked)):
        flaws.append(f"{why}: do it yourself, or end")
    return tuple(flaws)


def flaws_of_call(brief: Brief, action: Action) -> tuple[str, ...]:
    if not is_asked_by(brief, action):
        return ()
    try:
        call = AgentCall.model_validate(action.arguments)
    except ValidationError as error:
        return (f"arguments of {action.tool}: {flaws_of_fields(error)}",)
    offered = {skill.name for skill in brief.skills}
    unknown = sorted(set(call.tools or ()) - offered)
    return (f"tools {', '.join(unknown)} are not on offer here, so no other agent gets them",) if unknown else ()


def most_at_once(brief: Brief, tool: str) -> int:
    return brief.limits.max_children if is_agent(brief.skill(tool)) else sys.maxsize


def to_come(state: RunState, gathering: Gathering) -> int:
    sent = {flight.pending.name for flight in flights(state.waiting)}
    names = ((gathering.step, task.id, task.round) for task in gathering.tasks if is_asked_by(state.brief, task.action))
    return sum(name not in sent for name in names)


def is_child(pending: Pending) -> bool:
    return pending.grant is not None


def under_way(state: RunState) -> tuple[Pending, ...]:
    return tuple(f.pending for f in flights(state.waiting) if is_child(f.pending) and f.retry_at is None)


def stopping(state: RunState) -> tuple[Pending, ...]:
    """Cancelled because their step may gather no more; their ends are waited for."""
    stopped = {gathering.step for gathering in gatherings(state.waiting) if gathering.stopped}
    return tuple(pending for pending in under_way(state) if pending.step in stopped) if stopped else ()


def wants(state: RunState, child_run_id: str) -> bool:
    stop = {pending.name for pending in stopping(state)}
    going_on = (pending for pending in under_way(state) if pending.name not in stop)
    return any(run_id_of(state.run_id, pending) == child_run_id for pending in going_on)


def run_id_of(parent_run_id: str, pending: Pending) -> str:
    name = f"{parent_run_id}:{pending.step}:{pending.task}:{pending.round}:{pending.attempt}"
    instant = int(pending.requested_at.timestamp() * 1000).to_bytes(6, "big")
    return f"run_{ULID.from_bytes(instant + hashlib.sha256(name.encode()).digest()[:10])}"


def wake(state: RunState, pending: Pending) -> WakeAccepted:
    brief, run_id = state.brief, run_id_of(state.run_id, pending)
    call, grant = AgentCall.model_validate(as_sent(state, pending).payload), pending.grant
    assert grant is not None, "a child has a grant"
    context = _context(call)
    return WakeAccepted(
        at=pending.requested_at,
        run_id=run_id,
        wake_id=f"{WAKE_PREFIX}{run_id}",
        goal=call.goal,
        context=context,
        limits=_limits(brief.limits, call, grant),
        announce=True,
        fused=brief.fused,
        verify=brief.verify,
        depth=brief.depth + 1,
        by=f"run {state.run_id}",
        untrusted=bool(state.strangers),
        parent=Parent(
            run_id=state.run_id, step=pending.step, task=pending.task, round=pending.round, attempt=pending.attempt
        ),
        tools=call.tools or tuple(skill.name for skill in brief.skills),
        doubts=state.doubts,
        refused=tuple(_refused(state)),
        caller=brief.caller,
        named=egress.handed_on(state, (call.goal, json.dumps(context, ensure_ascii=False))) if state.strangers else (),
    )


def _context(call: AgentCall) -> dict[str, JsonValue]:
    given = {name: value for name, value in call.context.items() if name != DEPTH}
    if not call.evidence:
        return given
    share = max(0, MAX_CONTEXT - _length(given)) // len(call.evidence)
    while _length(whole := given | {"evidence": [_shortened(one, share) for one in call.evidence]}) > MAX_CONTEXT:
        if share < LEAST_EVIDENCE:  # what it was given fills the prompt: nothing else may take its place
            return given
        share = share * 4 // 5
    return whole


def _length(value: JsonValue) -> int:
    return len(json.dumps(value, ensure_ascii=False))


def _shortened(one: dict[str, JsonValue], share: int) -> dict[str, JsonValue]:
    text = json.dumps(one, ensure_ascii=False)
    return one if len(text) <= share else {"task": one.get("task"), "cut": clipped(text, share)}


def _limits(of_parent: Limits, call: AgentCall, grant: Grant) -> Limits:
    asked_until = call.constraints.deadline_at
    return replace(
        of_parent,
        max_steps=grant.steps,
        max_tokens=grant.tokens,
        max_cost_usd=grant.cost_usd,
        deadline_at=min(asked_until, of_parent.deadline_at) if asked_until else of_parent.deadline_at,
        deadline_named=of_parent.deadline_named or asked_until is not None,
        on_budget="escalate",
        reopen_days=0.0,
    )


def _refused(state: RunState) -> list[Ruling]:
    in_force = {r.subject_hash: r for r in state.rulings if r.heard >= state.heard}
    return [replace(r, step=0, heard=0) for r in in_force.values() if r.verdict != "approved"]
