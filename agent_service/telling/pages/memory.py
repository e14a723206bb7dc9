"""memory.md: what the run holds to be true now: its goal, what is proved, what was learned, where it stands. Pure."""

from collections.abc import Sequence

from agent_service.core.phases import Phase
from agent_service.core.state import DoneItem, RunState, Spent
from agent_service.telling.minds import thought_by
from agent_service.telling.moments import Moment
from agent_service.telling.outputs import NamedArtifact, is_artifact_path, named_artifacts
from agent_service.telling.pages.context import limit_lines
from agent_service.telling.pages.markdown import bullets, code, inline, page, section, tick
from agent_service.telling.plain import instant
from agent_service.telling.standing import standing


def memory_page(moments: Sequence[Moment]) -> str:
    run = moments[-1].after
    return page(
        "Memory",
        thought_by(moments, Phase.FRAME, Phase.REFLECT),
        *_framing(run),
        section("Learned facts", bullets(map(inline, run.facts)) or "None yet."),
        *_heard(run),
        *_artifacts(named_artifacts(moments)),
        _status(moments[-1]),
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
