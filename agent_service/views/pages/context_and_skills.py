"""context.md and skills.md: goal, context, limits, and the tools that the run may call."""

from agent_service.history import words
from agent_service.history.plain import instant
from agent_service.views.pages.heading import RecordedRun
from agent_service.views.pages.markdown import bullets, code, fenced, inline, json_block, page, section
from schemas.catalog import ToolCommand, ToolOffer

WHOLE = 4 << 20
"""More characters than a message can bring."""


def context_page(recorded: RecordedRun) -> str:
    accepted, run = recorded.history.accepted, recorded.run
    brief = accepted.brief
    callback = f"Told about its end: {code(brief.callback)}" if brief.callback else ""
    way = "by the wake API" if brief.announced else "by a message on the bus"
    by = f", from {code(accepted.by)}" if accepted.by else ""
    return page(
        "Context",
        f"Run {code(run.run_id)}, asked for as wake {code(run.wake_id)} at {instant(accepted.at)} {way}{by}.",
        section("Goal, as given", fenced(brief.goal, limit=WHOLE)),
        section("Context, as given", json_block(brief.context, limit=WHOLE) if brief.context else "None was given."),
        section("Limits at the start", bullets(words.limits(brief.limits)), callback),
    )


_TIERS = {"read": "read, changes nothing outside and may be repeated", "write": "write, changes something outside"}


def skills_page(recorded: RecordedRun) -> str:
    started = recorded.history.started
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
