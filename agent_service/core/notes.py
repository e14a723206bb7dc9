"""Notes: what the model is shown of the steps before, one block each, rendered once and never again.

Rules: a note is appended and kept byte for byte, so that a provider's prompt cache knows it again. What tools, models
and files wrote stands between tags that it cannot close. A note is bounded, and says how to get what was cut. When the
notes have grown too long, the older steps give way to facts; what people said is never compacted.
"""

import json
import re
from collections.abc import Sequence

from pydantic import JsonValue

from agent_service.core.phases import Reflection
from agent_service.core.replacing import replace
from agent_service.core.state import Note, RunState, StepRecord
from agent_service.core.waiting import Pending
from schemas.events import ARTIFACT_PATH

KEPT_STEPS = 4
"""The newest steps, which stay as they are when the others are compacted."""
SLACK_STEPS = 4
"""How many more there must be, so that a compaction is worth its call."""
MAX_RESULT, MAX_ARGUMENTS, MAX_REFLECTION, MAX_THOUGHT, MAX_MESSAGE, MAX_FACT = 9000, 1500, 6000, 800, 2000, 400
MOST_MESSAGES = 50
"""Of people, the newest."""
MAX_MEMORY = 40
"""Facts that a memory may hold."""
_TOLD_AS_TEXT = frozenset({"summary", "excerpt"})

_LESS_THAN = re.compile("[<\ufe64\uff1c]")
"""The sign that begins a tag, with those that become it when Unicode's compatibility forms are folded."""


def harmless(text: str) -> str:
    """`text` without any sign that could begin a tag: what stands between our tags can neither close nor open one.

    Every such sign, not only those that look like a tag: a model reads tags more kindly than any pattern of ours.
    """
    return _LESS_THAN.sub("&lt;", text)


def clipped(text: str, length: int, rest: str = "") -> str:
    """At most `length` characters of `text`, and a marker of how many are missing and where the rest is."""
    if len(text) <= length:
        return text
    return f"{text[:length]}\n[cut: {length} of {len(text)} characters are shown{rest}]"


def with_step(state: RunState, pending: Pending, record: StepRecord, output: dict[str, JsonValue]) -> RunState:
    """The state with the note of a finished step, which takes the reflection before it along."""
    return replace(state, notes=(*state.notes, _step(state, pending, record, output)), reflection=None)


def with_message(state: RunState, message: str, *, answers: str = "") -> RunState:
    """The state with what a person told the run; `answers` is what they were asked."""
    asked = f"In answer to: {clipped(harmless(answers), MAX_THOUGHT)}\n" if answers else ""
    said = f"{asked}{clipped(harmless(message), MAX_MESSAGE)}"
    note = Note(kind="person", text=f"<message_from_a_person>\n{said}\n</message_from_a_person>")
    heard = [id(note) for note in state.notes if note.kind == "person"]
    given_up = set(heard[: max(0, len(heard) + 1 - MOST_MESSAGES)])
    return replace(state, notes=(*(kept for kept in state.notes if id(kept) not in given_up), note))


def overfull(state: RunState) -> bool:
    """Whether the notes have grown so long that the older ones are to be compacted."""
    steps = [note for note in state.notes if note.kind == "step"]
    size = sum(len(note.text) for note in state.notes if note.kind != "person")
    return size > state.brief.limits.max_notes and len(steps) >= _kept_steps(state) + SLACK_STEPS


def _kept_steps(state: RunState) -> int:
    """How many of the newest steps stay as they are: at least those of the newest plan, which nobody has seen yet."""
    return max(KEPT_STEPS, len(state.plan.actions) if state.plan else 0)


def compacted(state: RunState, memory: Sequence[str], *, kept_steps: int | None = None) -> RunState:
    """The state with `memory` in the place of its facts and of all notes of steps but the newest `kept_steps`."""
    facts = tuple(fact[:MAX_FACT] for fact in memory if fact.strip())[-MAX_MEMORY:]
    steps = [note for note in state.notes if note.kind == "step"]
    kept = _kept_steps(state) if kept_steps is None else kept_steps
    given_up = {id(note) for note in steps[: max(0, len(steps) - kept)]}
    left = tuple(note for note in state.notes if note.kind != "memory" and id(note) not in given_up)
    return replace(state, facts=facts, notes=(_memory(facts), *left))


def shrunk(state: RunState) -> RunState | None:
    """The state with as little as possible, by no model's help; None when there is nothing to give up."""
    steps = [note for note in state.notes if note.kind == "step"]
    return compacted(state, state.facts, kept_steps=1) if len(steps) > 1 else None


def thought(reflection: Reflection) -> str:
    """A reflection as the model is reminded of it."""
    met = ", ".join(f"{m.item} ({m.evidence})" for m in reflection.met)
    facts = "".join(f"\n- {fact[:MAX_FACT]}" for fact in reflection.facts)
    lines = (
        f"Reflection: {clipped(reflection.summary, MAX_THOUGHT)}",
        f"Claimed as met: {clipped(met, MAX_THOUGHT)}" if met else "",
        f"Facts learned:{facts}" if facts else "",
    )
    return clipped(harmless("\n".join(filter(None, lines))), MAX_REFLECTION)


def _memory(facts: Sequence[str]) -> Note:
    lines = "\n".join(f"- {harmless(fact)[:MAX_FACT]}" for fact in facts) or "- nothing worth keeping"
    return Note(kind="memory", text=f"<memory_of_older_steps>\n{lines}\n</memory_of_older_steps>")


def _step(state: RunState, pending: Pending, record: StepRecord, output: dict[str, JsonValue]) -> Note:
    plan, action = state.plan, pending.action
    arguments = json.dumps(action.arguments, ensure_ascii=False, sort_keys=True)
    first = plan is not None and len(state.pendings) == len(plan.actions)  # of a plan, that is: it says why once
    why = (plan.rationale, plan.expected_outcome) if plan and first else ("", "")
    lines = (
        f'<step number="{record.step}" tool="{record.tool}" command="{record.command}" status="{record.status}">',
        thought(state.reflection) if state.reflection else "",
        f"Why: {clipped(harmless(why[0]), MAX_THOUGHT)}" if why[0] else "",
        f"Expected: {clipped(harmless(why[1]), MAX_THOUGHT)}" if why[1] else "",
        f"Arguments: {clipped(harmless(arguments), MAX_ARGUMENTS)}",
        f"<untrusted_result>\n{_result(output)}\n</untrusted_result>",
        "</step>",
    )
    return Note(kind="step", text="\n".join(filter(None, lines)))


def _result(output: dict[str, JsonValue]) -> str:
    path, excerpt, summary = (_text(output.get(name)) for name in ("artifact_path", "excerpt", "summary"))
    kept = path if ARTIFACT_PATH.fullmatch(path) else ""
    rest = f"; the whole is the artifact {kept}" if kept else "; ask the tool for less at a time"
    told = {name: value for name, value in output.items() if name not in _TOLD_AS_TEXT or not isinstance(value, str)}
    parts = (
        summary,
        json.dumps(told, ensure_ascii=False, sort_keys=True) if told else "",
        f"Excerpt of {kept or 'the result'}:\n{excerpt}" if excerpt else "",
    )
    return clipped(harmless("\n".join(filter(None, parts)) or "(nothing)"), MAX_RESULT, rest)


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""
