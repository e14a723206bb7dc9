"""memory.md (goal, proofs, facts) and plan.md (steps so far, one next action, the advisory outline)."""

from collections.abc import Iterator, Sequence

from agent_service.core.attempts import Pending
from agent_service.core.brief import Spent
from agent_service.core.phases import Phase, Plan
from agent_service.core.state import RunState
from agent_service.core.waiting import Ended, NeedsPerson, Planned
from agent_service.history.artifacts import NamedArtifact, is_artifact_path, named_artifacts
from agent_service.history.plain import instant, one_line
from agent_service.history.words import call_of, request_of, speaker
from agent_service.views.pages.given import limit_lines, tier_of
from agent_service.views.pages.markdown import bullets, code, inline, json_block, numbered, page, section, tick
from agent_service.views.pages.proofs import checked
from agent_service.views.pages.standing import opening, standing
from agent_service.views.pages.told import Told
from agent_service.views.steps import StepView, TaskView, step_views


def memory_page(told: Told) -> str:
    run = told.run
    return page(
        "Memory",
        *opening(run),
        thought_by(told, Phase.FRAME, Phase.REFLECT),
        *_framing(run),
        section("Learned facts", bullets(map(inline, run.facts)) or "None yet."),
        section("Said by people", bullets(map(inline, run.messages))) if run.messages else "",
        *_artifacts(named_artifacts(told.records)),
        _status(told),
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
            "\n".join(map(checked, run.done_items)),
        ),
        section("Constraints", bullets((*map(inline, framing.constraints), *limits))),
        section("Assumptions and unknowns", bullets(map(inline, framing.assumptions)) or "None named."),
        section("Hypothesis", inline(framing.hypothesis)) if framing.hypothesis else "",
    )


def _artifacts(named: Sequence[NamedArtifact]) -> tuple[str, ...]:
    return (section("Artifacts", bullets(map(_artifact, named))),) if named else ()


def _artifact(artifact: NamedArtifact) -> str:
    size = f"{artifact.size} bytes" if artifact.size is not None else ""
    kind = code(artifact.content_type) if artifact.content_type else ""
    refused = "" if is_artifact_path(artifact.path) else "not kept here: no name for a file"
    about = ", ".join(filter(None, (kind, size, refused)))
    return f"{code(artifact.path)}, from step {artifact.step}" + (f" ({about})" if about else "")


def _status(told: Told) -> str:
    run, last = told.run, told.records[-1]
    lines = [
        f"step {run.step} of at most {run.brief.limits.max_steps}, {run.attempts} attempts",
        f"{run.reframes} of at most {run.brief.limits.max_reframes} reframes",
        _spent(run.spent),
        f"as of entry {last.entry.seq}, {instant(last.entry.at)}",
    ]
    return section("Status", bullets(lines))


def _spent(spent: Spent) -> str:
    cost = "price not known" if spent.cost_usd is None else f"{spent.cost_usd:.4f} USD"
    cached = f" ({spent.cache_read_tokens} from the provider's cache)" if spent.cache_read_tokens else ""
    lost = (
        f"; {spent.lost_calls} cut off without a reply (by a crash, a cancel or the deadline), which count as "
        f"{spent.lost_tokens} tokens"
        if spent.lost_calls
        else ""
    )
    tokens = f"{spent.input_tokens} tokens in{cached} and {spent.output_tokens} out"
    return f"{spent.calls} model calls, {tokens}, {cost}{lost}"


def plan_page(told: Told) -> str:
    run = told.run
    return page(
        "Plan",
        *opening(run),
        thought_by(told, Phase.PLAN, Phase.REFLECT),
        section("Steps", "\n".join(_steps(told)) or "None yet."),
        section("Next action", _next(run)),
        section("Outline", "Advisory: only the next action binds.", numbered(run.outline)) if run.outline else "",
    )


def reasons(run: RunState, plan: Plan) -> str:
    said = (("Rationale", plan.rationale), ("Expected outcome", plan.expected_outcome), ("Risk", plan.risk))
    commands = map(run.brief.command, plan.actions)
    tiers = dict.fromkeys(f"Tier: {tier_of(command) if command else 'not on offer'}" for command in commands)
    return bullets((*(f"{name}: {inline(text)}" for name, text in said if text), *tiers))


def _steps(told: Told) -> Iterator[str]:
    for step in step_views(told.run, told.history):
        yield _step(told.run, step)
        yield from map(_task, step.tasks)


def _step(run: RunState, step: StepView) -> str:
    call = code(f"{step.tool} {one_line(step.command, 64)}")
    attempt = f", attempt {step.attempt}" if step.attempt > 1 else ""
    why = f" ({code(step.error.error_class)})" if step.error and step.error.error_class else ""
    how = {
        "ok": "done",
        "error": f"failed{why}",
        "budget": "could gather no more",
        "pending": "waiting for its result",
        "waiting": "waiting for its next attempt",
        "unfinished": "not finished when the run ended",
    }[step.status]
    if step.status == "unfinished" and run.ending_class == "in_doubt" and not step.tasks:
        how = "not known whether it was done"
    if step.status == "pending" and step.tasks:
        return tick(False, f"{step.step}. {call}{attempt}, waiting for what it asked for")
    said = f": {inline(step.summary, 200)}" if step.summary else ""
    return tick(step.status == "ok", f"{step.step}. {call}{attempt}, {how}{said}")


def _task(task: TaskView) -> str:
    asked = f": {inline(task.query, 200)}" if task.query else ""
    after = f", after {', '.join(map(code, task.depends_on))}" if task.depends_on else ""
    why = f" ({code(task.error.error_class)})" if task.error else ""
    said = task.error.message if task.error else task.summary
    came = f"{_CAME[task.status]}{why}" + (f": {inline(said, 200)}" if said else "")
    line = f"{code(task.id)} of round {task.round}, {code(f'{task.tool} {task.command}')}{asked}{after}, {came}"
    return "  " * task.depth + tick(task.status == "ok", line)


_CAME = {
    "waiting": "waits",
    "pending": "under way",
    "ok": "done",
    "error": "failed",
    "continuation": "asks for more",
    "budget": "may gather no more",
    "unfinished": "not finished",
}


def _next(run: RunState) -> str:
    held = run.waiting.held if isinstance(run.waiting, NeedsPerson | Ended) else None
    if isinstance(held, Planned):
        kept = ", ".join(code(call_of(action)) for action in held.plan.actions)
        return f"None yet: {kept} is kept until there is a step for it."
    if not run.pendings or run.plan is None:
        return "None: the run has ended." if run.final else f"None. {standing(run)}"
    asked = " ".join(map(_asked, run.pendings))
    arguments = (json_block(pending.action.arguments) for pending in run.pendings)
    return "\n\n".join((f"{asked} {standing(run)}", *arguments, reasons(run, run.plan)))


def _asked(pending: Pending) -> str:
    what = request_of(pending.name)
    return f"**{what[0].upper()}{what[1:]}: {code(call_of(pending.action))}**, on route {code(pending.route)}."


def thought_by(told: Told, *phases: Phase) -> str:
    thought = told.history.thought_by
    models = dict.fromkeys(model for phase in thought if phase in phases for model in thought[phase])
    names = " and ".join(inline(speaker(model)) for model in models)
    return f"Thought by {names}." if names else ""
