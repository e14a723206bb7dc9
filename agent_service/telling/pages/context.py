"""context.md: the goal and the context as given, and by what limits. Pure."""

from collections.abc import Sequence

from agent_service.core.events import WakeAccepted
from agent_service.core.state import Limits
from agent_service.telling.moments import Moment
from agent_service.telling.pages.markdown import bullets, code, fenced, json_block, page, section
from agent_service.telling.plain import instant

WHOLE = 4 << 20
"""More characters than a message can bring: what was asked is shown in full."""


def context_page(moments: Sequence[Moment]) -> str:
    first = moments[0]
    brief = first.after.brief
    callback = f"Told about its end: {code(brief.callback)}" if brief.callback else ""
    return page(
        "Context",
        f"Run {code(first.after.run_id)}, asked for as wake {code(first.after.wake_id)} at {instant(first.entry.at)}"
        f" {_way(first)}.",
        section("Goal, as given", fenced(brief.goal, limit=WHOLE)),
        section("Context, as given", json_block(brief.context, limit=WHOLE) if brief.context else "None was given."),
        section("Limits at the start", bullets(limit_lines(brief.limits)), callback),
    )


def limit_lines(limits: Limits) -> list[str]:
    """What the run may spend, one line each."""
    lines = [
        f"at most {limits.max_steps} steps, {limits.max_attempts} attempts each, {limits.max_attempts_of_run} in all",
        f"at most {limits.max_reframes} reframes",
        f"until {instant(limits.deadline_at)}",
    ]
    if limits.max_tokens is not None:
        lines.append(f"at most {limits.max_tokens} tokens")
    if limits.max_cost_usd is not None:
        lines.append(f"at most {limits.max_cost_usd:.4f} USD")
    then = "hands itself to a person" if limits.on_budget == "escalate" else "pauses until a person raises it"
    return [*lines, f"when a limit is reached, the run {then}"]


def _way(first: Moment) -> str:
    announced = isinstance(first.event, WakeAccepted) and first.event.announce
    return "by the wake API" if announced else "by a message on the bus"
