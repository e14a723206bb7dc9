"""memory.md and plan.md: where the run stands now. Pure.

memory.md has what it holds to be true: its goal, what is proved, what was learned. plan.md has the steps so far,
exactly one next action, and the outline, which binds nobody.
"""

from collections.abc import Iterable, Sequence

from agent_service.core.events import ModelReplied
from agent_service.core.flights import flights
from agent_service.core.phases import Action, Phase, Plan
from agent_service.core.state import DoneItem, RunState, Spent, StepRecord
from agent_service.core.waiting import Flight, ForModel, ModelRetry, Pending, Status, under_way
from agent_service.moments import Moment
from agent_service.telling.acts import executor_of, unfinished
from agent_service.telling.outputs import NamedArtifact, is_artifact_path, named_artifacts
from agent_service.telling.pages.given import limit_lines, tier_of
from agent_service.telling.pages.markdown import bullets, code, inline, json_block, numbered, page, section, tick
from agent_service.telling.plain import instant
from agent_service.telling.sayings import call_of, speaker


def memory_page(moments: Sequence[Moment]) -> str:
    run = moments[-1].after
    return page(
        "Memory",
        thought_by(moments, Phase.FRAME, Phase.REFLECT),
        _status(moments[-1]),
        *_framing(run),
        section("Learned facts", bullets(map(inline, run.facts)) or "None yet."),
        *_heard(run),
        *_artifacts(named_artifacts(moments)),
    )


def _framing(run: RunState) -> tuple[str, ...]:
    framing = run.framing
    if framing is None:
        return (section("Goal", "Not framed yet. What was asked is in context.md."),)
    done = sum(item.done for item in run.done_items)
    limits = (f"limit: {line}" for line in limit_lines(run.brief.limits))
    return (
        section("Goal", inline(framing.goal_statement)),
        section(
            f"Definition of done ({done} of {len(run.done_items)})",
            "\n".join(map(_item, run.done_items)),
        ),
        section("Constraints", bullets((*map(inline, framing.constraints), *limits))),
        section("Assumptions and unknowns", bullets(map(inline, framing.assumptions)) or "None named."),
        section("Hypothesis", inline(framing.hypothesis)) if framing.hypothesis else "",
    )


def _item(item: DoneItem) -> str:
    evidence = f" (evidence: {', '.join(map(code, item.evidence))})" if item.done else ""
    return tick(item.done, f"{item.id}: {inline(item.text)}{evidence}")


def _heard(run: RunState) -> tuple[str, ...]:
    return (section("Said by people", bullets(map(inline, run.messages))),) if run.messages else ()


def _artifacts(named: Sequence[NamedArtifact]) -> tuple[str, ...]:
    return (section("Artifacts", bullets(map(_artifact, named))),) if named else ()


def _artifact(artifact: NamedArtifact) -> str:
    size = f"{artifact.size} bytes" if artifact.size is not None else ""
    kind = code(artifact.content_type) if artifact.content_type else ""
    refused = "" if is_artifact_path(artifact.path) else "not kept here: no name for a file"
    about = ", ".join(filter(None, (kind, size, refused)))
    return f"{code(artifact.path)}, from step {artifact.step}" + (f" ({about})" if about else "")


def _status(last: Moment) -> str:
    run = last.after
    lines = [
        f"step {run.step} of at most {run.brief.limits.max_steps}, {run.attempts} attempts",
        f"{run.reframes} of at most {run.brief.limits.max_reframes} reframes",
        _spent(run.spent),
        f"as of entry {last.entry.seq}, {instant(last.entry.at)}",
    ]
    outcome = f"Outcome: {inline(run.outcome)}" if run.outcome else ""
    return section("Status", standing(run), outcome, bullets(lines))


def _spent(spent: Spent) -> str:
    cost = "price not known" if spent.cost_usd is None else f"{spent.cost_usd:.4f} USD"
    cached = f" ({spent.cache_read_tokens} from the provider's cache)" if spent.cache_read_tokens else ""
    lost = (
        f"; {spent.lost_calls} calls cut off without a reply, at most {spent.lost_tokens} tokens"
        if spent.lost_calls
        else ""
    )
    tokens = f"{spent.input_tokens} tokens in{cached} and {spent.output_tokens} out"
    return f"{spent.calls} model calls, {tokens}, {cost}{lost}"


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
            *((f"Rationale: {inline(plan.rationale)}",) if plan.rationale else ()),
            f"Expected outcome: {inline(plan.expected_outcome or 'not said')}",
            f"Risk: {inline(plan.risk or 'none named')}",
            f"Tier: {tier_of(command) if command else 'not on offer'}",
        )
    )


def _steps(run: RunState) -> str:
    lines = {record.step: _finished(record) for record in run.completed}
    for flight in flights(run.waiting):
        pending = flight.pending
        lines[pending.step] = tick(False, f"{_what(pending.step, pending.action)}: waiting for {_awaited(run, flight)}")
    for left in unfinished(run):
        lines[left.step] = tick(False, f"{_what(left.step, left.action)}: not finished when the run ended")
    return "\n".join(lines[step] for step in sorted(lines))


def _finished(record: StepRecord) -> str:
    call = code(call_of(Action(tool=record.tool, command=record.command, arguments={})))
    attempt = f", attempt {record.attempt}" if record.attempt > 1 else ""
    outcome = "done" if record.status == "ok" else "failed"
    return tick(record.status == "ok", f"{record.step}. {call}{attempt}, {outcome}: {inline(record.summary, 200)}")


def _what(step: int, action: Action) -> str:
    return f"{step}. {code(call_of(action))}"


def _next(run: RunState) -> str:
    if not run.pendings or run.plan is None:
        return f"None. {standing(run)}"
    asked = " ".join(map(_asked, run.pendings))
    arguments = (json_block(pending.action.arguments) for pending in run.pendings)
    return "\n\n".join((f"{asked} {standing(run)}", *arguments, reasons(run, run.plan)))


def _asked(pending: Pending) -> str:
    return f"**Step {pending.step}: {code(call_of(pending.action))}**, on route {code(pending.route)}."


def thought_by(moments: Iterable[Moment], *phases: Phase) -> str:
    """One line of Markdown with the models that replied when asked for one of `phases`; empty while none has."""
    models: dict[str, None] = {}
    for moment in moments:
        asking = moment.before.asking if moment.before else None
        if asking and asking.phase in phases and isinstance(moment.event, ModelReplied):
            models[moment.event.model] = None
    names = " and ".join(inline(speaker(model)) for model in models)
    return f"Thought by {names}." if names else ""


def standing(run: RunState) -> str:
    if run.status is Status.QUEUED:
        return "**Queued**: accepted, not started."
    if run.final and run.ended_at:
        why = "" if run.status is Status.DONE else f" ({code(run.ending_class)}): {inline(run.reason)}"
        return f"**Ended: {run.status}** at {instant(run.ended_at)}{why}."
    if run.status is Status.PAUSED:
        return f"**Paused** ({code(run.ending_class)}), waiting for a person: {inline(run.reason)}"
    return f"**Running**, waiting for {waited_for(run)}."


def waited_for(run: RunState) -> str:
    match under_way(run.waiting):
        case ForModel(asking=asking):
            return f"the model to {asking.phase} (call {asking.call})"
        case ModelRetry(asking=asking, retry_at=at):
            return f"the time to ask the model again for {asking.phase}: {instant(at)}"
    return ", and ".join(_awaited(run, flight) for flight in flights(run.waiting)) or "nothing"


def _awaited(run: RunState, flight: Flight) -> str:
    if flight.retry_at is None:
        return _result(run, flight.pending)
    return f"the time to send {_attempt(flight.pending)}: {instant(flight.retry_at)}"


def _attempt(pending: Pending) -> str:
    return f"step {pending.step}, {code(call_of(pending.action))}, attempt {pending.attempt}"


def _result(run: RunState, pending: Pending) -> str:
    executor = executor_of(run, pending)
    whom = f"{code(executor)}, route {code(pending.route)}" if executor else f"route {code(pending.route)}"
    asked, due = instant(pending.requested_at), instant(pending.deadline_at)
    return f"the result of {_attempt(pending)}, asked of {whom} at {asked}, due by {due}"
