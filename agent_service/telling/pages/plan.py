"""plan.md: the steps so far, exactly one next action, and the outline, which binds nobody. Pure."""

from collections.abc import Sequence

from agent_service.core.phases import Action, Phase, Plan
from agent_service.core.state import RunState, StepRecord
from agent_service.telling.minds import thought_by
from agent_service.telling.moments import Moment
from agent_service.telling.pages.markdown import bullets, code, inline, json_block, numbered, page, section, tick
from agent_service.telling.pages.skills import tier_of
from agent_service.telling.sayings import call_of
from agent_service.telling.standing import standing, waited_for
from agent_service.telling.steps import unfinished


def plan_page(moments: Sequence[Moment]) -> str:
    run = moments[-1].after
    return page(
        "Plan",
        thought_by(moments, Phase.PLAN, Phase.REFLECT),
        section("Steps", _steps(run) or "None yet."),
        section("Next action", _next(run)),
        section("Outline", "Advisory: only the next action binds.", numbered(run.outline)) if run.outline else "",
    )


def reasons(run: RunState, plan: Plan) -> str:
    """Why this action, what it should bring, and what it risks."""
    command = run.brief.command(plan.action)
    return bullets(
        (
            f"Rationale: {inline(plan.rationale or 'not said')}",
            f"Expected outcome: {inline(plan.expected_outcome or 'not said')}",
            f"Risk: {inline(plan.risk or 'none named')}",
            f"Tier: {tier_of(command) if command else 'not on offer'}",
        )
    )


def _steps(run: RunState) -> str:
    lines = [_finished(record) for record in run.completed]
    if run.pending:
        lines.append(tick(False, f"{_what(run.pending.step, run.pending.action)}: waiting for {waited_for(run)}"))
    left = unfinished(run)
    if left:
        lines.append(tick(False, f"{_what(left.step, left.action)}: not finished when the run ended"))
    return "\n".join(lines)


def _finished(record: StepRecord) -> str:
    call = code(call_of(Action(tool=record.tool, command=record.command, arguments={})))
    attempt = f", attempt {record.attempt}" if record.attempt > 1 else ""
    outcome = "done" if record.status == "ok" else "failed"
    return tick(record.status == "ok", f"{record.step}. {call}{attempt}, {outcome}: {inline(record.summary, 200)}")


def _what(step: int, action: Action) -> str:
    return f"{step}. {code(call_of(action))}"


def _next(run: RunState) -> str:
    if run.pending is None or run.plan is None:
        return f"None. {standing(run)}"
    action = run.pending.action
    named = f"**Step {run.pending.step}: {code(call_of(action))}**, on route {code(run.pending.route)}."
    return "\n\n".join((f"{named} {standing(run)}", json_block(action.arguments), reasons(run, run.plan)))
