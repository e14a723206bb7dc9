"""The prompt of one model call, in blocks ordered by how seldom they change, so that providers can cache its beginning.

    rules     the same for every run of a release; there is a short form for small models
    skills    the same for all calls of a run, and for runs with the same tools
    case      goal, context and framing: the same until the goal is reframed
    notes     one per finished step, appended and worded the same way each time
    tail      where the run stands, what is left, what is asked now: different in every call

Rules: no clock, counter or id before the tail; rendered from durable state alone. Framing sees what people said and
facts, not results: a result must not word a new objective. A verifier sees the claim and nothing of the work.

Templates, and what else words a prompt, are versioned by one hash. Values are put in, never evaluated. What others
wrote goes through `harmless`, so that it cannot close the tags around it, and all of it through `visible`.
"""

from datetime import datetime
from itertools import zip_longest
from typing import Any

from agent_service.core.brief import Brief
from agent_service.core.limits import steps_taken
from agent_service.core.noted import MessageNote, RulingNote
from agent_service.core.notes import KEPT_STEPS, MAX_MEMORY, in_short
from agent_service.core.phases import Phase
from agent_service.core.state import DoneItem, RunState, StepRecord
from agent_service.core.tools.acting import name_of_call
from agent_service.core.waiting import Asking
from agent_service.models.prompts import notes
from agent_service.models.prompts.budget import budget_of
from agent_service.models.prompts.replies import Form, form_of, schema_hash, schema_of
from agent_service.models.prompts.templating import canonical, rendered, thought, version
from agent_service.run.ports import PromptText, Question
from groundwork.service.invisible import visible
from schemas.clipping import clipped
from schemas.values import dataclass

REFRAMED = "reframe: "
SCHEMA_AND_TAIL = 3500
"""About how many bytes these are."""


SHOWN_OF_ARGUMENTS = 600
"""Characters of a write's arguments that a verifier sees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    system: tuple[str, ...]
    case: str
    notes: tuple[str, ...]
    tail: str
    form: Form
    schema: dict[str, Any]
    template_hash: str
    schema_hash: str

    @property
    def message(self) -> tuple[str, ...]:
        return self.case, *self.notes, self.tail

    def size(self) -> int:
        """In bytes of UTF-8, the schema left out."""
        return sum(len(block.encode()) for block in (*self.system, *self.message))


def compose(question: Question) -> Prompt:
    state = question.state
    calls = tuple(f"{skill.name}.{command.name}" for skill in state.brief.skills for command in skill.commands)
    verifying, form = question.phase is Phase.VERIFY, form_of(question.phase)
    system = (rendered("verifier"),) if verifying else (rendered(rules_of(state.brief)), visible(_skills(state)))
    case, steps = (_claim(state), ()) if verifying else (_case(state), _notes(question))
    case = visible(case)
    size = sum(len(block.encode()) for block in (*system, case, *steps)) + SCHEMA_AND_TAIL
    return Prompt(
        system=system,
        case=case,
        notes=steps,
        tail=visible("\n\n".join(filter(None, _tail(question, size)))),
        form=form,
        schema=schema_of(form, calls),
        template_hash=version(),
        schema_hash=schema_hash(form, calls),
    )


def rules_of(brief: Brief) -> str:
    return "rules-short" if brief.short_rules else "rules"


def as_text(question: Question) -> PromptText:
    prompt = compose(question)
    return PromptText(system=prompt.system, user=prompt.message, version=prompt.template_hash)


def _skills(state: RunState) -> str:
    return rendered("skills", tools=state.brief.skills, parallel_reads=state.brief.limits.parallel_reads)


def _case(state: RunState) -> str:
    first = state.original.constraints if state.original else ()
    return rendered(
        "case",
        goal=state.brief.goal,
        context=state.brief.context,
        framing=state.framing,
        original=state.original,
        constraints=tuple(dict.fromkeys((*first, *(state.framing.constraints if state.framing else ())))),
        done_items=state.done_items,
    )


def _notes(question: Question) -> tuple[str, ...]:
    noted = question.state.notes
    if question.phase is Phase.FRAME:
        noted = tuple(note for note in noted if isinstance(note, MessageNote | RulingNote))
    return notes.told(noted)


def _tail(question: Question, size: int) -> tuple[str, str, str]:
    asking = question.state.asking
    told = asking or Asking(call=question.call, phase=question.phase)
    repair = rendered("repair", feedback=_feedback(told), flaws=told.flaws, rejected=told.rejected)
    if question.phase is Phase.VERIFY:
        return "", repair, _verification(question)
    return _standing(question, size), repair, _request(question)


def _standing(question: Question, size: int) -> str:
    state = question.state
    budget = budget_of(state, question.phase, question.now, prompt_bytes=size)
    return rendered(
        "standing",
        now=_minute(question.now),
        done_items=state.done_items,
        open_items=[item.id for item in state.done_items if not item.done],
        met_items=[f"{item.id} ({', '.join(item.evidence)})" for item in state.done_items if item.done],
        outline=state.outline,
        reflection=thought(in_short(state.reflection)) if state.reflection else "",
        doubts=[f"step {doubt.step} ({doubt.tool})" for doubt in state.doubts],
        unmade=_unmade(state),
        tainted_by=state.tainted_by,
        questions=f"{state.questions} of {state.brief.limits.max_questions}" if state.questions else "",
        budget=budget.left,
        note=budget.note,
    )


def _unmade(state: RunState) -> list[str]:
    actions = state.plan.actions if state.plan else ()
    made = {record.call for record in state.completed[-2 * len(actions) :]}
    calls = [f"{action.tool}.{action.command} with {canonical(action.arguments)}" for action in actions]
    return [] if made.intersection(map(name_of_call, actions)) else calls


def _minute(now: datetime) -> str:
    return f"{now:%Y-%m-%d %H:%M} UTC"


def _feedback(asking: Asking) -> tuple[str, ...]:
    told = tuple(map(str, asking.feedback))
    return tuple(line for line in told if not line.startswith(REFRAMED)) if asking.phase is Phase.FRAME else told


def _request(question: Question) -> str:
    state = question.state
    return rendered(
        question.phase.value,
        with_plan=question.with_plan,
        with_steps=steps_taken(state) < state.brief.limits.max_steps,
        said=any(map(notes.is_heeded, state.notes[-1:])),
        fresh=state.step > 0 and state.reflection is None,
        first=state.step - len(state.plan.also if state.plan else ()),
        step=state.step,
        reframing=state.framing is not None,
        facts=state.facts,
        artifacts=state.artifacts[-MAX_MEMORY:],
        most_facts=MAX_MEMORY,
        kept_steps=KEPT_STEPS,
    )


def _verification(question: Question) -> str:
    state = question.state
    proposing = state.proposed is not None
    why = state.claim.summary if proposing and state.claim else ""
    return rendered("verify", now=_minute(question.now), proposing=proposing, why=why)


def _claim(state: RunState) -> str:
    return rendered(
        "claim",
        goal=state.brief.goal,
        context=state.brief.context,
        people=[notes.block(note) for note in filter(notes.is_heeded, state.notes)],
        original=state.original,
        framing=state.framing,
        proposed=state.proposed,
        done_items=[(item, _evidence(state, item)) for item in state.done_items],
        outcome=state.claim.outcome if state.claim else None,
    )


def _evidence(state: RunState, item: DoneItem) -> list[tuple[str, str]]:
    calls = {f"step:{record.step}": f" ({record.tool} {record.command}{_sent(record)})" for record in state.completed}
    pairs = zip_longest(item.evidence, item.quotes[: len(item.evidence)], fillvalue="")
    return [(f"{evidence}{calls.get(evidence, '')}", quote) for evidence, quote in pairs]


def _sent(record: StepRecord) -> str:
    return f" with {clipped(canonical(record.sent), SHOWN_OF_ARGUMENTS)}" if record.sent else ""
