"""Prompt of a model call, in blocks from the most stable to the least, so that providers can cache its beginning.

    rules     the same for every run of a release; there is a short form for small models
    skills    the same for all calls of a run, and for runs with the same tools
    case      goal, context and framing: the same until the goal is reframed
    notes     one per finished step, appended and worded the same way each time
    tail      current state, remaining budget and the question: different in every call

No clock, counter or id stands before the tail; all is rendered from durable state. Framing sees people's messages and
facts, but no results: a result must not word a new objective. A verifier sees the claim and nothing of the work.

One hash versions templates and wording code. Texts of others go through `harmless`, so that they cannot close the tags
around them, and everything through `visible`.
"""

from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import Any

from agent_service.core.acting import call_hash
from agent_service.core.limits import steps_taken
from agent_service.core.phases import Phase
from agent_service.core.state import MessageNote, RulingNote, RunState
from agent_service.core.waiting import OpenCall
from agent_service.models.estimates import SHORTEST_REPLY, likely_prompt_tokens, min_reply_tokens
from agent_service.models.prompts import wording
from agent_service.models.prompts.replies import reply_to, schema_hash, schema_of
from agent_service.models.prompts.wording import canonical, is_from_person, rendered, version
from agent_service.run.ports import ModelQuestion, PromptText
from groundwork.service.invisible import visible
from schemas.values import dataclass

REFRAMED = "reframe: "
SCHEMA_AND_TAIL = 3500
"""Estimated bytes."""
SHORT = 0.8
TO_THE_END = "say `done` if every item is met, else `ask` or `escalate`, with what was found and what is open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    system: tuple[str, ...]
    case: str
    notes: tuple[str, ...]
    tail: str
    schema: dict[str, Any]
    template_hash: str
    schema_hash: str

    @property
    def message(self) -> tuple[str, ...]:
        return self.case, *self.notes, self.tail

    def size(self) -> int:
        """Bytes of UTF-8, without the schema."""
        return sum(len(block.encode()) for block in (*self.system, *self.message))


def compose(question: ModelQuestion) -> Prompt:
    state = question.state
    calls = tuple(f"{skill.name}.{command.name}" for skill in state.brief.skills for command in skill.commands)
    verifying, reply = question.phase is Phase.VERIFY, reply_to(question.phase)
    words = partial(rendered, run=state, question=question)
    rules = "rules-short" if state.brief.short_rules else "rules"
    system = (words("verifier"),) if verifying else (words(rules), visible(words("skills")))
    people = [wording.block(note) for note in filter(is_from_person, state.notes)]
    case = visible(words("claim", people=people) if verifying else words("case"))
    noted = state.notes
    if question.phase is Phase.FRAME:
        noted = tuple(note for note in noted if isinstance(note, MessageNote | RulingNote))
    steps = () if verifying else wording.blocks(noted)
    size = sum(len(block.encode()) for block in (*system, case, *steps)) + SCHEMA_AND_TAIL
    return Prompt(
        system=system,
        case=case,
        notes=steps,
        tail=visible("\n\n".join(filter(None, _tail(question, size)))),
        schema=schema_of(reply, calls),
        template_hash=version(),
        schema_hash=schema_hash(reply, calls),
    )


def as_text(question: ModelQuestion) -> PromptText:
    prompt = compose(question)
    return PromptText(system=prompt.system, user=prompt.message, version=prompt.template_hash)


def _tail(question: ModelQuestion, size: int) -> tuple[str, str, str]:
    state = question.state
    asking = state.open_call or OpenCall(call=question.call, phase=question.phase)
    words = partial(rendered, run=state, question=question)
    feedback = [*map(str, asking.feedback)]
    if asking.phase is Phase.FRAME:
        feedback = [line for line in feedback if not line.startswith(REFRAMED)]
    repair = words("repair", feedback=feedback, flaws=[*map(str, asking.flaws)], rejected=asking.rejected)
    if question.phase is Phase.VERIFY:
        return "", repair, words("verify")
    left, note = budget_of(state, question.phase, question.now, prompt_bytes=size)
    asked = words(
        question.phase.value,
        with_steps=steps_taken(state) < state.brief.limits.max_steps,
        said=any(map(is_from_person, state.notes[-1:])),
    )
    return words("standing", left=left, note=note, unmade=_unmade(state)), repair, asked


def _unmade(state: RunState) -> list[str]:
    actions = state.plan.actions if state.plan else ()
    made = {record.call for record in state.completed[-2 * len(actions) :]}
    calls = [f"{action.tool}.{action.command} with {canonical(action.arguments)}" for action in actions]
    return [] if made.intersection(map(call_hash, actions)) else calls


# Remaining budgets of the run, for its model


def budget_of(state: RunState, phase: Phase, now: datetime, *, prompt_bytes: int) -> tuple[tuple[str, ...], str]:
    """Rest of each budget, and a note on what is scarce and how to act: from a fifth of any budget on, at the last
    step, and when hardly another call fits. `prompt_bytes`: estimated size of the prompt that holds it."""
    calls = calls_after(state, prompt_bytes)
    budgets = tuple(_budgets(state, now, calls))
    short = tuple(words for words, used, _ in budgets if used >= SHORT)
    left = tuple(words for words, used, always in budgets if always or used >= SHORT)
    return left, _note(state, phase, short, last=calls == 0)


def calls_after(state: RunState, prompt_bytes: int) -> int | None:
    """Estimated number of model calls that fit after this one; None if unlimited or unknown."""
    limits, spent, cost = state.brief.limits, state.spent, state.spent.paid
    prompt, rooms = likely_prompt_tokens(state, prompt_bytes), []
    least = prompt + (min_reply_tokens(state) if state.longest_reply else SHORTEST_REPLY)
    if limits.max_tokens is not None:
        left = limits.max_tokens - spent.tokens - spent.lost_tokens
        rooms.append(_fits(left, prompt + (state.longest_reply or SHORTEST_REPLY), least))
    if limits.max_cost_usd is not None and cost and spent.calls:
        rooms.append(_fits(limits.max_cost_usd - cost, cost / spent.calls, least * state.dearest_token))
    return min(rooms, default=None)


def _fits(left: float, takes: float, needs: float) -> int:
    after = left - takes
    return 0 if after < needs else 1 + int((after - needs) / takes)


def _note(state: RunState, phase: Phase, short: tuple[str, ...], *, last: bool) -> str:
    if not short or phase in (Phase.COMPACT, Phase.VERIFY):
        return ""
    if phase is not Phase.FRAME and steps_taken(state) >= state.brief.limits.max_steps:
        return f"No step is left, so no action can be carried out: {TO_THE_END}."
    if phase is not Phase.FRAME and last:
        return f"No model call fits into the budget after this one: {TO_THE_END}."
    return f"Little is left ({'; '.join(short)}): finish what matters most, or end while you can still say why."


def _budgets(state: RunState, now: datetime, calls: int | None) -> Iterator[tuple[str, float, bool]]:
    """Rest of each budget, its used share, and true if it is always shown."""
    limits, taken, tokens, cost = state.brief.limits, steps_taken(state), state.spent.used, state.spent.paid
    left = max(0, limits.max_steps - taken)
    is_last = (taken and left <= 1) or not limits.max_steps
    yield f"{left} of {limits.max_steps} steps", 1.0 if is_last else taken / limits.max_steps, True
    lasts_s = (limits.deadline_at - state.accepted_at).total_seconds()
    left_s = max(0.0, (limits.deadline_at - now).total_seconds())
    words = f"{round(left_s / 60)} minutes" if left_s >= 90 else f"{round(left_s)} seconds"
    yield words, 1 - left_s / lasts_s if lasts_s > 0 else 1.0, True
    shares = [0.0]
    if limits.max_tokens is not None:
        shares.append(tokens / limits.max_tokens)
        yield f"{max(0, limits.max_tokens - tokens)} of {limits.max_tokens} tokens", shares[-1], True
    if limits.max_cost_usd is not None and cost is not None:
        shares.append(cost / limits.max_cost_usd)
        yield f"{max(0.0, limits.max_cost_usd - cost):.4f} of {limits.max_cost_usd:.4f} USD", shares[-1], True
    if calls is not None:
        number = {0: "no", 1: "about one"}.get(calls, f"about {calls}")
        more = f"{number} more model call{'s' if calls > 1 else ''} after this one"
        yield more, 1.0 if calls <= 1 else max(shares), False
    for what, used, most in (
        ("reframes", state.reframes, limits.max_reframes),
        ("tool attempts", state.attempts, limits.max_attempts_of_run),
        ("questions to people", state.questions, limits.max_questions),
    ):
        if used:
            yield f"{max(0, most - used)} of {most} {what}", used / max(1, most), False
