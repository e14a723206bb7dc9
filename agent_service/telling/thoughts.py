"""What a model replied, as blocks of Markdown for the diary: each decision, and why it was refused if it was. Pure."""

from collections.abc import Iterator, Sequence

from agent_service.core.events import ModelReplied
from agent_service.core.phases import Digest, Framing, Met, Plan, Reflection, Refusal, Unusable, Verdict
from agent_service.core.state import RunState
from agent_service.telling.moments import Moment
from agent_service.telling.pages.markdown import bullets, code, fenced, inline, json_block, numbered, tick
from agent_service.telling.pages.plan import reasons
from agent_service.telling.rulings import Ruling
from agent_service.telling.sayings import call_of, speaker


def headline(ruled: Sequence[Ruling]) -> str:
    """The phases of a reply, such as `Reflect and plan`."""
    return " and ".join(map(_phase, ruled)).capitalize()


def thoughts(moment: Moment, reply: ModelReplied, ruled: Sequence[Ruling]) -> Iterator[str]:
    usage = reply.usage
    cost = "price not known" if usage.cost_usd is None else f"{usage.cost_usd:.4f} USD"
    cached = f" ({usage.cache_read_tokens} from the cache)" if usage.cache_read_tokens else ""
    spent = f"{usage.input_tokens} tokens in{cached}, {usage.output_tokens} out, {cost}"
    yield f"By {inline(speaker(reply.model))}, call {reply.call}: {spent}."
    if reply.provenance and reply.provenance.cache_miss:
        yield f"The provider's prompt cache was missed: {inline(reply.provenance.cache_miss)}."
    for ruling in ruled:
        yield from _decided(moment, ruling)
        if ruling.status == "ignored":
            yield "Not carried out: the reflection does not go on."
        if ruling.why:
            yield f"**Refused** ({code(ruling.error_class or '')}): {inline(ruling.why)}"


def _phase(ruling: Ruling) -> str:
    return f"{ruling.phase} (try {ruling.attempt})" if ruling.attempt > 1 else ruling.phase.value


def _decided(moment: Moment, ruling: Ruling) -> Iterator[str]:
    match ruling.decision:
        case Framing() as framing:
            yield from _framed(framing)
        case Plan() as plan:
            yield f"**Step {ruling.step}: {code(call_of(plan.action))}**"
            yield json_block(plan.action.arguments)
            yield reasons(moment.after, plan)
        case Reflection() as reflection:
            yield from _reflected(moment.after, reflection)
        case Digest(memory=memory):
            yield f"Takes the place of the older notes:\n\n{bullets(map(inline, memory)) or '(nothing)'}"
        case Refusal(category=category, explanation=explanation):
            yield f"**Refused to answer** ({code(category)}). {inline(explanation)}"
        case Unusable(reason=reason, raw=raw):
            yield f"**No valid decision.** {inline(reason)}"
            yield fenced(raw) if raw else ""


def _framed(framing: Framing) -> Iterator[str]:
    yield f"**The goal.** {inline(framing.goal_statement)}"
    yield f"Done when:\n\n{numbered(framing.definition_of_done)}"
    notes = [f"Constraint: {inline(text)}" for text in framing.constraints]
    notes += [f"Assumed or unknown: {inline(text)}" for text in framing.assumptions]
    notes += [f"Hypothesis: {inline(framing.hypothesis)}"] if framing.hypothesis else []
    yield bullets(notes)


def _reflected(run: RunState, reflection: Reflection) -> Iterator[str]:
    word = "Reframe, because" if reflection.verdict is Verdict.REFRAME else reflection.verdict.capitalize()
    yield f"**{word}:** {inline(reflection.summary)}"
    claims = [_claim(run, met) for met in reflection.met]
    yield "\n".join((*claims, *(f"- Learned: {inline(fact)}" for fact in reflection.facts)))
    if reflection.outline is not None:
        yield f"The outline is now:\n\n{numbered(reflection.outline) or '(empty)'}"
    if reflection.outcome:
        yield f"Outcome: {inline(reflection.outcome)}"


def _claim(run: RunState, met: Met) -> str:
    accepted = any(item.id == met.item and met.evidence in item.evidence for item in run.done_items)
    proof = "by" if accepted else "claimed, and not accepted, by"
    return tick(accepted, f"{inline(met.item, 40)} is met, {proof} {code(met.evidence)}")
