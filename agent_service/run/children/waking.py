"""Wake of a child, derived from the state of its parent.

A child is one level deeper, with no other tools, no more than its grant and no later deadline. It inherits the parent's
taint, in-doubt writes and refusals.
"""

import json
from collections.abc import Sequence
from datetime import datetime

from pydantic import JsonValue, ValidationError

from agent_service.admission.granting import LimitRefused
from agent_service.core import egress
from agent_service.core.brief import Brief, Grant, Limits, Parent
from agent_service.core.continuing import action_as_sent
from agent_service.core.events import WakeAccepted
from agent_service.core.limits import child_run_id
from agent_service.core.planning import refusals_in_force
from agent_service.core.state import RunState
from agent_service.core.waiting import Pending
from agent_service.trust.identity import trace_url_of_child
from schemas import catalog, subjects
from schemas.catalog import AgentCall, ToolOffer
from schemas.clipping import clipped
from schemas.events import AgenticStart
from schemas.fields import validation_flaws
from schemas.values import replace

DEPTH = "agentic_depth"
"""Field of a start's context that holds its recursion depth."""
MAX_CONTEXT, LEAST_EVIDENCE = 8000, 50
"""Characters of a context with what tasks brought, and the fewest worth keeping of one task's result."""
WAKE_PREFIX = "child:"
NOTHING = Grant(steps=0, tokens=0, cost_usd=0.0)


class BadCall(ValueError):
    """The call cannot wake a run; the text says why."""


def depth_of(start: AgenticStart, parent: RunState | None, *, deepest: int) -> int:
    """Recursion depth, at least one more than the parent's. `parent`: the named run, if it is here. An invalid depth
    counts as the deepest. Raises LimitRefused for a parent that is unknown or has ended, and for a depth above
    `deepest`.
    """
    given = start.context.get(DEPTH, 0)
    in_context = given if isinstance(given, int) and not isinstance(given, bool) and given >= 0 else deepest
    if start.parent_run_id is None and not start.depth:
        return in_context
    if start.parent_run_id and (parent is None or parent.final):
        raise LimitRefused("parent_run_id", f"{start.parent_run_id} is not a run that is under way here")
    depth = max(start.depth, in_context, parent.brief.depth + 1 if parent else 0)
    if depth > deepest:
        raise LimitRefused("depth", f"would be {depth}, and agents may call each other {deepest} times in a row")
    return depth


def tools_of(brief: Brief, offered: Sequence[ToolOffer]) -> tuple[ToolOffer, ...]:
    """Offered tools that the run may use. At the deepest level it may not call agents."""
    named = [tool for tool in offered if brief.tools is None or tool.name in brief.tools]
    if brief.may_have_children:
        return tuple(named)
    return tuple([tool for tool in named if (tool.name, tool.route) != (catalog.NAME, subjects.SERVICE_AGENT)])


def wake(parent: RunState, pending: Pending, *, at: datetime) -> WakeAccepted:
    """Raises BadCall."""
    brief, run_id = parent.brief, child_run_id(parent.run_id, pending)
    call = _call(parent, pending)
    context = _context(call)
    texts = (call.goal, json.dumps(context, ensure_ascii=False))
    given = Brief(
        goal=call.goal,
        limits=_limits(brief.limits, call, pending.grant or NOTHING),
        context=context,
        fused=brief.fused,
        short_rules=brief.short_rules,
        verify=brief.verify,
        depth=brief.depth + 1,
        parent=asked_by(parent, pending),
        tools=call.tools or tuple(skill.name for skill in brief.skills),
        announced=True,
        trace_url=trace_url_of_child(brief.trace_url, parent.run_id, run_id),
        untrusted=bool(parent.tainted_by),
        caller=brief.caller,
        named=egress.child_addresses(parent, texts) if parent.tainted_by else (),
    )
    return WakeAccepted(
        at=at,
        run_id=run_id,
        wake_id=f"{WAKE_PREFIX}{run_id}",
        brief=given,
        by=f"run {parent.run_id}",
        doubts=parent.doubts,
        refused=tuple(replace(ruling, step=0, words=0) for ruling in refusals_in_force(parent).values()),
    )


def asked_by(parent: RunState, pending: Pending) -> Parent:
    step, task, asked_in = pending.name
    return Parent(run_id=parent.run_id, step=step, task=task, round=asked_in, attempt=pending.attempt)


def _call(parent: RunState, pending: Pending) -> AgentCall:
    try:
        call = AgentCall.model_validate(action_as_sent(parent, pending).payload)
    except ValidationError as error:
        raise BadCall(f"arguments of {pending.action.tool}: {validation_flaws(error)}") from error
    unknown = sorted(set(call.tools or ()) - {skill.name for skill in parent.brief.skills})
    if unknown:
        raise BadCall(f"tools {', '.join(unknown)} are not on offer here, so no other agent gets them")
    return call


def _context(call: AgentCall) -> dict[str, JsonValue]:
    given = {name: value for name, value in call.context.items() if name != DEPTH}
    if not call.evidence:
        return given
    share = max(0, MAX_CONTEXT - _length(given)) // len(call.evidence)
    while _length(whole := given | {"evidence": [_shortened(one, share) for one in call.evidence]}) > MAX_CONTEXT:
        if share < LEAST_EVIDENCE:  # the given context leaves no room, and is not cut for evidence
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
