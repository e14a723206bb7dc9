"""context.md, skills.md, memory.md and plan.md: what was asked, with which tools, what is known, and what is next."""

from collections.abc import Iterator, Sequence

from agent_service.core.phases import Plan
from agent_service.core.proof import shown_by
from agent_service.core.state import DoneItem, RunState
from agent_service.core.waiting import Ended, NeedsPerson, Planned
from agent_service.history import words
from agent_service.history.artifacts import NamedArtifact, is_artifact_path
from agent_service.history.history import History
from agent_service.history.items import Item, as_tree
from agent_service.history.plain import instant, one_line
from agent_service.history.words import call_of, limits, request_of, usd
from agent_service.views.pages.markdown import bullets, code, fenced, inline, json_block, numbered, page, section, tick
from schemas.catalog import ToolCommand, ToolOffer

WHOLE = 4 << 20
"""More characters than a message can bring."""


def context_page(run: RunState, history: History) -> str:
    accepted = history.accepted
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


def skills_page(run: RunState, history: History) -> str:
    started = history.started
    if started is None:
        return page("Skills", "Not frozen yet: the run has not started.")
    tools = run.brief.skills
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


def memory_page(run: RunState, history: History, head: Sequence[str], named: Sequence[NamedArtifact]) -> str:
    artifacts = bullets(map(_artifact, named))
    return page(
        "Memory",
        *head,
        *_framing(run),
        section("Learned facts", bullets(map(inline, run.facts)) or "None yet."),
        section("Said by people", bullets(map(inline, run.messages))) if run.messages else "",
        section("Artifacts", artifacts) if artifacts else "",
        _status(run, history),
    )


def _framing(run: RunState) -> tuple[str, ...]:
    framing = run.framing
    if framing is None:
        return (section("Goal", "Not framed yet. What was asked is in context.md."),)
    done = sum(item.done for item in run.done_items)
    limited = (f"limit: {line}" for line in limits(run.brief.limits))
    return (
        section("Goal", inline(framing.goal_statement)),
        section(
            f"Definition of done ({done} of {len(run.done_items)})",
            "\n".join(map(_checked, run.done_items)),
        ),
        section("Constraints", bullets((*map(inline, framing.constraints), *limited))),
        section("Assumptions and unknowns", bullets(map(inline, framing.assumptions)) or "None named."),
        section("Hypothesis", inline(framing.hypothesis)) if framing.hypothesis else "",
    )


def _checked(item: DoneItem) -> str:
    if item.done:
        quotes = item.quotes or ("",) * len(item.evidence)
        shown = ", ".join(
            f'{code(evidence)}, "{inline(quote, 200)}"' if quote else code(evidence)
            for evidence, quote in zip(item.evidence, quotes, strict=False)
        )
        return tick(True, f"{item.id}: {inline(item.text)} (evidence: {shown})")
    needs = f" (to be shown by {inline(str(shown_by(item.proof)))})" if item.proof else ""
    return tick(False, f"{item.id}: {inline(item.text)}{needs}")


def _artifact(artifact: NamedArtifact) -> str:
    size = f"{artifact.size} bytes" if artifact.size is not None else ""
    kind = code(artifact.content_type) if artifact.content_type else ""
    refused = "" if is_artifact_path(artifact.path) else "not kept here: no name for a file"
    about = ", ".join(filter(None, (kind, size, refused)))
    return f"{code(artifact.path)}, from step {artifact.step}" + (f" ({about})" if about else "")


def _status(run: RunState, history: History) -> str:
    spent = run.spent
    cached = f" ({spent.cache_read_tokens} from the provider's cache)" if spent.cache_read_tokens else ""
    lines = [
        f"step {run.step} of at most {run.brief.limits.max_steps}, {run.attempts} attempts",
        f"{run.reframes} of at most {run.brief.limits.max_reframes} reframes",
        f"{spent.calls} model calls, {spent.input_tokens} tokens in{cached} and {spent.output_tokens} out, "
        + usd(spent.cost_usd),
        f"as of entry {history.seq}, {instant(history.record.at)}",
    ]
    if spent.lost_calls:
        lines.append(f"{spent.lost_calls} calls cut off without a reply, which count as {spent.lost_tokens} tokens")
    return section("Status", bullets(lines))


def plan_page(run: RunState, history: History, head: Sequence[str]) -> str:
    steps = as_tree((*history.of_kind("step"), *history.of_kind("task")))
    return page(
        "Plan",
        *head,
        section("Steps", "\n".join(map(_step, steps)) or "None yet."),
        section("Next action", *_next(run)),
        section("Outline", "Advisory: only the next action binds.", numbered(run.outline)) if run.outline else "",
    )


def reasons(run: RunState, plan: Plan) -> str:
    said = (("Rationale", plan.rationale), ("Expected outcome", plan.expected_outcome), ("Risk", plan.risk))
    commands = map(run.brief.command, plan.actions)
    tiers = dict.fromkeys(f"Tier: {tier_of(command) if command else 'not on offer'}" for command in commands)
    return bullets((*(f"{name}: {inline(text)}" for name, text in said if text), *tiers))


_CAME: dict[str, str] = {
    "ok": "done",
    "error": "failed",
    "open": "under way",
    "waiting": "waits",
    "cancelled": "not finished",
    "continuation": "asks for more",
}


def _step(item: Item) -> str:
    """A step, or below it a task."""
    which = f"{code(item.task)} of round {item.round}," if item.task else f"{item.step}."
    query, needs = item.about.get("query"), item.about.get("needs")
    asked = f": {inline(query, 200)}" if query else ""
    after = f", after {', '.join(map(code, needs))}" if needs else ""
    attempt = f", attempt {item.attempt}" if (item.attempt or 0) > 1 else ""
    came = "may gather no more" if item.outcome == "budget" else _CAME[item.status]
    error = item.error if item.status != "ok" else None
    why = f" ({code(error.error_class)})" if error else ""
    said = error.message if error else item.summary
    call = code(f"{item.tool} {one_line(item.command or '', 64)}")
    line = f"{which} {call}{asked}{after}{attempt}, {came}{why}" + (f": {inline(said, 200)}" if said else "")
    return "  " * item.depth + tick(item.status == "ok", line)


def _next(run: RunState) -> Iterator[str]:
    held = run.waiting.held if isinstance(run.waiting, NeedsPerson | Ended) else None
    if isinstance(held, Planned):
        kept = ", ".join(code(call_of(action)) for action in held.plan.actions)
        yield f"None yet: {kept} is kept until there is a step for it."
    elif not run.pendings or run.plan is None:
        yield "None."
    else:
        for pending in run.pendings:
            what = request_of(pending.name).capitalize()
            yield f"**{what}: {code(call_of(pending.action))}**, on route {code(pending.route)}."
            yield json_block(pending.action.arguments)
        yield reasons(run, run.plan)
