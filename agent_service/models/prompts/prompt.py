"""The prompt of one model call, in blocks ordered by how seldom they change, so that providers can cache its beginning.

    rules     the same for every run of a release
    skills    the same for all calls of a run, and for runs with the same tools
    case      goal, context and framing: the same until the goal is reframed
    notes     one per finished step, appended and never rendered again
    tail      where the run stands, what is left, what is asked now: different in every call

Rules: no clock, counter or id before the tail. Rendered from durable state alone, so that a crash or another model
changes nothing. Reframing is shown the facts, not the results they came from: a result must not word a new objective.

The templates are files beside this one, versioned by a hash over all of them. Values are put in, never evaluated; a
name that is missing is an error. What others wrote goes through `harmless`, so that it cannot close the tags around it.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib import resources
from typing import Any

import jinja2

from agent_service.core import notes
from agent_service.core.limits import cost_so_far
from agent_service.core.phases import Phase
from agent_service.core.state import RunState
from agent_service.core.waiting import Asking
from agent_service.models.prompts.replies import Form, form_of, schema_hash, schema_of
from agent_service.ports import PromptText, Question

FOLDER = "templates"
SHORT = 0.8
"""The share of a budget from which on the model is told to come to an end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What a model is sent. `template_hash` is of all templates, `schema_hash` of the schema of its reply."""

    rules: str
    skills: str
    case: str
    notes: tuple[str, ...]
    tail: str
    form: Form
    schema: dict[str, Any]
    template_hash: str
    schema_hash: str

    @property
    def system(self) -> tuple[str, ...]:
        return self.rules, self.skills

    @property
    def message(self) -> tuple[str, ...]:
        """The one message of the user, in blocks."""
        return self.case, *self.notes, self.tail

    def size(self) -> int:
        """In bytes of UTF-8, the schema left out."""
        return sum(len(block.encode()) for block in (*self.system, *self.message))


def compose(question: Question) -> Prompt:
    """The prompt that asks `question`."""
    state = question.state
    tools = tuple(skill.name for skill in state.brief.skills)
    form = form_of(question.phase, with_plan=question.with_plan)
    return Prompt(
        rules=rendered("rules"),
        skills=rendered("skills", tools=state.brief.skills),
        case=_case(state),
        notes=() if question.phase is Phase.FRAME else tuple(note.text for note in state.notes),
        tail=f"{_standing(state, question.now)}\n\n{_request(question)}",
        form=form,
        schema=schema_of(form, tools),
        template_hash=version(),
        schema_hash=schema_hash(form, tools),
    )


def as_text(question: Question) -> PromptText:
    """The prompt that asks `question`, for people who want to read it."""
    prompt = compose(question)
    return PromptText(system=prompt.system, user=prompt.message, version=prompt.template_hash)


def _case(state: RunState) -> str:
    brief = state.brief
    return rendered("case", goal=brief.goal, context=brief.context, framing=state.framing, done_items=state.done_items)


def _standing(state: RunState, now: datetime) -> str:
    asking, reflection = state.asking, state.reflection
    left = _left(state, now)
    return rendered(
        "standing",
        now=f"{now:%Y-%m-%d %H:%M} UTC",
        done_items=state.done_items,
        open_items=[item.id for item in state.done_items if not item.done],
        met_items=[f"{item.id} ({', '.join(item.evidence)})" for item in state.done_items if item.done],
        outline=state.outline,
        reflection=notes.thought(reflection) if reflection else "",
        budget=[told for told, _ in left],
        short=[told for told, used in left if used >= SHORT],
        feedback=_feedback(asking) if asking else (),
        rejected=asking.rejected if asking else "",
    )


def _feedback(asking: Asking) -> tuple[str, ...]:
    """What the program says. Why the goal is framed anew is the model's own word, and told as such elsewhere."""
    return () if asking.phase is Phase.FRAME and not asking.repairs else asking.feedback


def _request(question: Question) -> str:
    state = question.state
    return rendered(
        question.phase.value,
        with_plan=question.with_plan,
        step=state.step,
        reframing=state.framing is not None,
        facts=state.facts,
        artifacts=state.artifacts[-notes.MAX_MEMORY :],
        most_facts=notes.MAX_MEMORY,
    )


def _left(state: RunState, now: datetime) -> list[tuple[str, float]]:
    """Each budget that the run has, as what is left of it in words, and the share that is used."""
    limits, spent = state.brief.limits, state.spent
    lasts_s = (limits.deadline_at - state.accepted_at).total_seconds()
    left_s = max(0.0, (limits.deadline_at - now).total_seconds())
    left = [
        (f"{max(0, limits.max_steps - state.step)} of {limits.max_steps} steps", state.step / limits.max_steps),
        (f"{max(1, round(left_s / 60))} minutes", 1 - left_s / lasts_s if lasts_s > 0 else 1.0),
    ]
    if limits.max_tokens is not None:
        used = spent.tokens + spent.lost_tokens
        left.append((f"{max(0, limits.max_tokens - used)} of {limits.max_tokens} tokens", used / limits.max_tokens))
    cost = cost_so_far(spent)
    if limits.max_cost_usd is not None and cost is not None:
        money = f"{max(0.0, limits.max_cost_usd - cost):.4f} of {limits.max_cost_usd:.4f} USD"
        left.append((money, cost / limits.max_cost_usd))
    return left


@cache
def version() -> str:
    """That of the templates in force."""
    return version_of(_texts())


def version_of(texts: Mapping[str, str]) -> str:
    """SHA-256 over the names and texts of templates, its first 16 digits."""
    digest = hashlib.sha256()
    for name, text in sorted(texts.items()):
        digest.update(f"{name}\0{text}\0".encode())
    return digest.hexdigest()[:16]


def rendered(name: str, **values: Any) -> str:
    """Template `name` with `values`. Raises jinja2.UndefinedError for a value that it needs and does not get."""
    return _environment().get_template(f"{name}.md").render(**values).strip()


def canonical(value: Any) -> str:
    """JSON that is the same for the same value, so that a provider's cache knows it again."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(", ", ": "))


@cache
def _texts() -> dict[str, str]:
    folder = resources.files(__package__) / FOLDER
    return {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir() if file.name.endswith(".md")}


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.DictLoader(_texts()),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701 # the text is for a model: `harmless` takes the tags out of what others wrote
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(harmless=notes.harmless, clipped=notes.clipped, canonical=canonical)
    return environment
