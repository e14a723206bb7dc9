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

from functools import partial
from typing import Any

from agent_service.core.acting import call_hash
from agent_service.core.limits import steps_taken
from agent_service.core.phases import Phase
from agent_service.core.state import MessageNote, RulingNote, RunState
from agent_service.core.waiting import OpenCall
from agent_service.models.prompts import notes
from agent_service.models.prompts.budget import budget_of
from agent_service.models.prompts.replies import reply_to, schema_hash, schema_of
from agent_service.models.prompts.templating import canonical, rendered, version
from agent_service.run.ports import ModelQuestion, PromptText
from groundwork.service.invisible import visible
from schemas.values import dataclass

REFRAMED = "reframe: "
SCHEMA_AND_TAIL = 3500
"""Estimated bytes."""


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
    people = [notes.block(note) for note in filter(notes.is_from_person, state.notes)]
    case = visible(words("claim", people=people) if verifying else words("case"))
    noted = state.notes
    if question.phase is Phase.FRAME:
        noted = tuple(note for note in noted if isinstance(note, MessageNote | RulingNote))
    steps = () if verifying else notes.blocks(noted)
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
    budget = budget_of(state, question.phase, question.now, prompt_bytes=size)
    asked = words(
        question.phase.value,
        with_steps=steps_taken(state) < state.brief.limits.max_steps,
        said=any(map(notes.is_from_person, state.notes[-1:])),
    )
    return words("standing", budget=budget, unmade=_unmade(state)), repair, asked


def _unmade(state: RunState) -> list[str]:
    actions = state.plan.actions if state.plan else ()
    made = {record.call for record in state.completed[-2 * len(actions) :]}
    calls = [f"{action.tool}.{action.command} with {canonical(action.arguments)}" for action in actions]
    return [] if made.intersection(map(call_hash, actions)) else calls
