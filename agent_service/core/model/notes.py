"""Notes: what the model is shown of past steps, one bounded block each, rendered once.

A note is kept byte for byte, for the provider's prompt cache. Texts of tools, models and files stand between tags
that they cannot close. When notes are too long, older steps give way to facts; words of people are never compacted.
A fact keeps every step that showed it as a source.
"""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import takewhile

from pydantic import JsonValue

from agent_service.core.phases import Reflection
from agent_service.core.state import Note, Ruling, RunState, StepRecord, replace
from agent_service.core.tools.attempts import Pending
from schemas.events import ARTIFACT_PATH

KEPT_STEPS = 4
"""The newest steps, which are not compacted."""
SLACK_STEPS = 4
"""Older steps that make a compaction worth its call."""
MAX_RESULT, MAX_ARGUMENTS, MAX_REFLECTION, MAX_THOUGHT, MAX_MESSAGE, MAX_FACT = 16_000, 1500, 6000, 800, 2000, 400
"""Characters. A result has room for an excerpt of 12 kB and the tool's other fields."""
MOST_MESSAGES = 50
MAX_MEMORY = 40
REMEMBERED_STEPS, MAX_REMEMBERED = 20, 120
"""Newest steps in a memory, and characters of each result."""
_OF_THE_CALL = frozenset({"job_id", "content_type"})
_OF_STRANGERS = "untrusted_result"
_STEPS_NAMED = re.compile(r"\bsteps?\W{0,2}(\d+)(?:\s*(-|,|and|to)\s*(\d+))?", re.IGNORECASE)

_LESS_THAN = re.compile("[<\ufe64\uff1c]")
"""`<`, and what Unicode's compatibility forms fold to it."""


def harmless(text: str) -> str:
    """Hides every sign that could begin a tag: a model reads tags more kindly than any pattern of ours."""
    return _LESS_THAN.sub("&lt;", text)


def clipped(text: str, length: int, rest: str = "") -> str:
    """At most `length` characters of `text`, and a marker of how many are missing and where the rest is."""
    if len(text) <= length:
        return text
    return f"{text[:length]}\n[cut: {length} of {len(text)} characters are shown{rest}]"


def with_step(state: RunState, pending: Pending, record: StepRecord, output: dict[str, JsonValue]) -> RunState:
    known = len(state.notes) - _unshown(state)
    step = _step(state, pending, record, output)
    return replace(state, notes=(*state.notes[:known], step, *state.notes[known:]), reflection=None)


def _unshown(state: RunState) -> int:
    newest = takewhile(lambda note: note.kind == "person", reversed(state.notes))
    return min(len(tuple(newest)), max(0, state.heard - state.shown))


def with_message(state: RunState, message: str, *, answers: str = "", untrusted: bool = False) -> RunState:
    """`answers`: the question, which is not the person's word. `untrusted`: shown as a result is."""
    asked = f"<asked_of_a_person>\n{clipped(harmless(answers), MAX_THOUGHT)}\n</asked_of_a_person>\n" if answers else ""
    said = clipped(harmless(message), MAX_MESSAGE)
    tag = _OF_STRANGERS if untrusted else "message_from_a_person"
    return _with_word(state, f"{asked}<{tag}>\n{said}\n</{tag}>")


def with_ruling(state: RunState, what: str, ruling: Ruling) -> RunState:
    why = f"\n{clipped(harmless(ruling.reason), MAX_MESSAGE)}" if ruling.reason else ""
    told = f"{ruling.verdict}: {clipped(harmless(what), MAX_ARGUMENTS)}{why}"
    return _with_word(state, f"<ruling>\n{told}\n</ruling>")


def _with_word(state: RunState, text: str) -> RunState:
    note = Note(kind="person", text=text)
    heard = [id(note) for note in state.notes if note.kind == "person"]
    given_up = set(heard[: max(0, len(heard) + 1 - MOST_MESSAGES)])
    return replace(state, notes=(*(kept for kept in state.notes if id(kept) not in given_up), note))


def is_heeded(note: Note) -> bool:
    return note.kind == "person" and f"<{_OF_STRANGERS}>" not in note.text


def overfull(state: RunState) -> bool:
    steps = [note for note in state.notes if note.kind == "step"]
    size = sum(len(note.text) for note in state.notes if note.kind != "person")
    return size > state.brief.limits.max_notes and len(steps) >= _kept_steps(state) + SLACK_STEPS


def _kept_steps(state: RunState) -> int:
    return max(KEPT_STEPS, len(state.plan.actions) if state.plan else 0)


def facts_suffice(state: RunState) -> bool:
    """Whether compaction needs no model: each older step failed or is a fact's source, and facts are few."""
    named = {step for fact in state.facts for step in _steps_in(fact)}
    older = _older(state, _kept_steps(state))
    return len(state.facts) <= MAX_MEMORY and all(r.status == "error" or r.step in named for r in older)


def _steps_in(fact: str) -> Iterator[int]:
    for first, how, last in _STEPS_NAMED.findall(fact):
        yield int(first)
        if last:
            most = min(int(last), int(first) + MAX_MEMORY)
            yield from range(int(first), most + 1) if how in ("-", "to") else (int(last),)


def compacted(state: RunState, memory: Sequence[str], *, kept_steps: int | None = None) -> RunState:
    facts = tuple(fact[:MAX_FACT] for fact in memory if fact.strip())[-MAX_MEMORY:]
    steps = [note for note in state.notes if note.kind == "step"]
    kept = _kept_steps(state) if kept_steps is None else kept_steps
    given_up = {id(note) for note in steps[: max(0, len(steps) - kept)]}
    left = tuple(note for note in state.notes if note.kind != "memory" and id(note) not in given_up)
    return replace(state, facts=facts, notes=(_memory(facts, _older(state, kept)), *left))


def _older(state: RunState, kept_steps: int) -> tuple[StepRecord, ...]:
    noted = sum(note.kind == "step" for note in state.notes)
    return state.completed[: len(state.completed) - min(noted, kept_steps)]


def shrunk(state: RunState) -> RunState | None:
    """Shrunk as far as possible without a model: all but the newest plan's steps, else all but the newest step. None
    when there is nothing to give up.
    """
    steps = [note for note in state.notes if note.kind == "step"]
    newest = len(state.plan.actions) if state.plan else 1
    kept = newest if len(steps) > newest else 1
    return compacted(state, state.facts, kept_steps=kept) if len(steps) > 1 else None


def thought(reflection: Reflection, told_as: str = "Reflection") -> str:
    met = ", ".join(f"{m.item} ({m.evidence})" for m in reflection.met)
    unmet = ", ".join(f"{u.item} ({u.reason})" for u in reflection.unmet)
    facts = "".join(f"\n- {fact[:MAX_FACT]}" for fact in reflection.facts)
    lines = (
        f"{told_as}: {clipped(reflection.summary, MAX_THOUGHT)}",
        f"Accepted as met: {clipped(met, MAX_THOUGHT)}" if met else "",
        f"No longer met: {clipped(unmet, MAX_THOUGHT)}" if unmet else "",
        f"Facts learned:{facts}" if facts else "",
    )
    return clipped(harmless("\n".join(filter(None, lines))), MAX_REFLECTION)


def _memory(facts: Sequence[str], older: Sequence[StepRecord]) -> Note:
    learned = [f"- {harmless(fact)[:MAX_FACT]}" for fact in facts] or ["- nothing worth keeping"]
    lines = ["<memory_of_older_steps>", *learned, *_remembered(older), "</memory_of_older_steps>"]
    return Note(kind="memory", text="\n".join(lines))


def _remembered(older: Sequence[StepRecord]) -> list[str]:
    if not older:
        return []
    told = [
        f"- step {r.step}, {r.tool} {r.command}, {r.status}: {_in_short(r.summary)}" for r in older[-REMEMBERED_STEPS:]
    ]
    return ["<untrusted_result>", *told, "</untrusted_result>"]


def _in_short(text: str) -> str:
    line = " ".join(harmless(text).split())
    return line if len(line) <= MAX_REMEMBERED else f"{line[:MAX_REMEMBERED]}…"


def _step(state: RunState, pending: Pending, record: StepRecord, output: dict[str, JsonValue]) -> Note:
    arguments = json.dumps(pending.action.arguments, ensure_ascii=False, sort_keys=True)
    lines = (
        f'<step number="{record.step}" tool="{record.tool}" command="{record.command}" status="{record.status}">',
        thought(state.reflection, f"Reflection after step {_before(state, pending)}") if state.reflection else "",
        *_reasons(state),
        f"Arguments: {clipped(harmless(arguments), MAX_ARGUMENTS)}",
        f"<untrusted_result>\n{_asked_first(state, record)}{_result(output)}\n</untrusted_result>",
        "</step>",
    )
    return Note(kind="step", text="\n".join(filter(None, lines)))


def _asked_first(state: RunState, record: StepRecord) -> str:
    asked = [one for one in state.evidence if one.step == record.step] if record.status != "budget" else []
    told = "; ".join(f"{one.task}: {one.query or f'{one.tool} {one.command}'} ({one.status})" for one in asked)
    return f"Asked for first: {clipped(harmless(told), MAX_THOUGHT)}\n" if told else ""


def _before(state: RunState, pending: Pending) -> int:
    return min(state.open_steps, default=pending.step) - 1


def _reasons(state: RunState) -> Iterator[str]:
    plan = state.plan
    if plan is None or len(state.open_steps) < len(plan.actions):
        return
    if plan.rationale:
        yield f"Why: {clipped(harmless(plan.rationale), MAX_THOUGHT)}"
    if plan.expected_outcome:
        yield f"Expected: {clipped(harmless(plan.expected_outcome), MAX_THOUGHT)}"


def _result(output: dict[str, JsonValue]) -> str:
    path, excerpt, summary = (_text(output.get(name)) for name in ("artifact_path", "excerpt", "summary"))
    kept = path if ARTIFACT_PATH.fullmatch(path) else ""
    rest = f"; the whole is the artifact {kept}" if kept else "; ask the tool for less at a time"
    listed = _listed(output.get("artifacts"))
    told_otherwise = {
        *_OF_THE_CALL,
        *(name for name in ("summary", "excerpt") if isinstance(output.get(name), str)),
        *(("artifact_path",) if kept else ()),
        *(("artifacts",) if listed else ()),
    }
    told = {name: value for name, value in output.items() if name not in told_otherwise}
    artifacts = ", ".join(listed) or kept
    parts = (
        summary,
        json.dumps(told, ensure_ascii=False, sort_keys=True) if told else "",
        f"Artifacts: {artifacts}" if artifacts else "",
        f"Excerpt of {kept or 'the result'}:\n{excerpt}" if excerpt else "",
    )
    return clipped(harmless("\n".join(filter(None, parts)) or "(nothing)"), MAX_RESULT, rest)


def _listed(artifacts: JsonValue) -> list[str]:
    if not isinstance(artifacts, list):
        return []
    listed = [_sized(artifact) for artifact in artifacts if isinstance(artifact, dict)]
    return listed if all(listed) and len(listed) == len(artifacts) else []


def _sized(artifact: dict[str, JsonValue]) -> str:
    path, size = _text(artifact.get("path")), artifact.get("size")
    if not ARTIFACT_PATH.fullmatch(path):
        return ""
    return f"{path} ({size} bytes)" if isinstance(size, int) else path


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


MOST = 100
_SOURCE = re.compile(r"\(\s*steps?\b[^()]*\)", re.IGNORECASE)


def with_new(known: tuple[str, ...], learned: tuple[str, ...]) -> tuple[str, ...]:
    if not learned:
        return known
    facts = {_said(fact): fact for fact in known}
    for fact in (fact[:MAX_FACT] for fact in learned):
        said = _said(fact)
        facts[said] = _with_source(facts[said], fact) if said in facts else fact
    return tuple(facts.values())[-MOST:]


def _said(fact: str) -> str:
    return " ".join(_SOURCE.sub("", fact).casefold().split()).rstrip(".;! ")


def _with_source(fact: str, again: str) -> str:
    sourced = " ".join((fact, *(source for source in _SOURCE.findall(again) if source not in fact)))
    return sourced if len(sourced) <= MAX_FACT else fact
