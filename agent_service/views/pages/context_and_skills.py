"""context.md and skills.md: goal, context, limits, and the tools that the run may call."""

from agent_service.core.events import RunStarted, WakeAccepted
from agent_service.history import words
from agent_service.history.plain import instant
from agent_service.views.pages.heading import RecordedRun
from agent_service.views.pages.markdown import bullets, code, fenced, inline, json_block, page, section
from schemas.catalog import ToolCommand, ToolOffer

WHOLE = 4 << 20
"""More characters than a message can bring."""


def context_page(recorded: RecordedRun) -> str:
    first, run = recorded.records[0], recorded.run
    brief = run.brief
    accepted = first.event if isinstance(first.event, WakeAccepted) else None
    limits = accepted.brief.limits if accepted else brief.limits
    callback = f"RecordedRun about its end: {code(brief.callback)}" if brief.callback else ""
    return page(
        "Context",
        f"Run {code(run.run_id)}, asked for as wake {code(run.wake_id)} at {instant(first.at)} {_way(accepted)}.",
        section("Goal, as given", fenced(brief.goal, limit=WHOLE)),
        section("Context, as given", json_block(brief.context, limit=WHOLE) if brief.context else "None was given."),
        section("Limits at the start", bullets(words.limits(limits)), callback),
    )


def _way(accepted: WakeAccepted | None) -> str:
    way = "by the wake API" if accepted and accepted.brief.announced else "by a message on the bus"
    return f"{way}, from {code(accepted.by)}" if accepted and accepted.by else way


_TIERS = {"read": "read, changes nothing outside and may be repeated", "write": "write, changes something outside"}


def skills_page(recorded: RecordedRun) -> str:
    started = next((record for record in recorded.records if isinstance(record.event, RunStarted)), None)
    if started is None:
        return page("Skills", "Not frozen yet: the run has not started.")
    tools = recorded.run.brief.skills
    frozen = f"Frozen at {instant(started.at)} (entry {started.entry.seq}). Nothing else can be called."
    listed = bullets(f"{code(t.name)}: {inline(t.description or 'no description', 200)}" for t in tools)
    return page("Skills", frozen, listed or "No tool is on offer.", *map(_tool, tools))


def tier_of(command: ToolCommand) -> str:
    again = " (idempotent: may be repeated)" if command.tier == "write" and command.idempotent else ""
    return f"{_TIERS[command.tier]}{again}"


def _tool(tool: ToolOffer) -> str:
    served = f"Served by route {code(tool.route)}, at most {tool.timeout_s:g} s per attempt."
    return section(code(tool.name), served, *(_command(tool, command) for command in tool.commands))


def _command(tool: ToolOffer, command: ToolCommand) -> str:
    described = inline(command.description) if command.description else ""
    takes = f"Takes, by its JSON schema:\n\n{json_block(command.input_schema)}" if command.input_schema else ""
    heading = code(f"{tool.name} {command.name}")
    return section(heading, f"Tier: {tier_of(command)}.", described, takes or "Takes any fields.", level=3)
