"""Notes: bounded records of a run's past steps and of people's messages.

A note never changes. When notes are too long, facts replace older steps; people's messages are never compacted. A fact
names every step that showed it as a source.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import TypeVar

from pydantic import JsonValue

from agent_service.core.facts import Ruled
from agent_service.core.phases import Framing, Plan, Reflection
from agent_service.core.state import (
    Excerpt,
    MemoryNote,
    MessageNote,
    Note,
    RulingNote,
    RunState,
    StepNote,
    StepRecord,
    StepSummary,
)
from agent_service.core.waiting import Pending
from schemas.values import replace

N = TypeVar("N", StepNote, MemoryNote)

KEPT_STEPS = 4
"""Newest steps, which are not compacted."""
SLACK_STEPS = 4
"""Older steps that make a compaction worth its call."""
MAX_RESULT, MAX_ARGUMENTS, MAX_THOUGHT, MAX_FACT = 16_000, 1500, 800, 400
"""Characters. A result has room for an excerpt of 12 kB and the tool's other fields."""
MAX_MESSAGE, MAX_UNTRUSTED = 8192, 2000
"""Characters of a message: whole from a person, cut from an untrusted sender."""
MOST_CLAIMS, MOST_LEARNED, MOST_ASKED = 20, 10, 20
"""Per reflection, and per step."""
MOST_MESSAGES = 50
MAX_MEMORY = 40
REMEMBERED_STEPS, MAX_REMEMBERED = 20, 120
PUNCTUATION = 2
"""Characters of JSON between values."""
_ORDER = {"artifact_path": 0, "summary": 0, "message": 0, "artifacts": 0, "excerpt": 2}
_RANGE = re.compile(r"(\d+)(?:\s*(?:-|–|to)\s*(\d+))?", re.IGNORECASE)  # noqa: RUF001 # models write it
_STEPS_NAMED = re.compile(
    r"\bsteps?(?:\s+(?:no|number))?\W{0,2}(\d+(?:(?:\s*[,&–-]\s*(?:and\s+)?|\s+(?:and|to)\s+)\d+)*)",  # noqa: RUF001 # same
    re.IGNORECASE,
)


_as_json = json.JSONEncoder(ensure_ascii=False, default=vars).encode


def shorten(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}…"


def bounded(value: dict[str, JsonValue], length: int) -> Excerpt:
    """Cuts an object to about `length` characters: identifying fields and summary come first, the excerpt last."""
    text = _as_json(value)
    if len(text) <= length:
        return Excerpt(value=value)
    beginning, _ = _cut(dict(sorted(value.items(), key=lambda field: _ORDER.get(field[0], 1))), length)
    assert isinstance(beginning, dict), "an object stays one"
    if beginning == value:
        return Excerpt(value=value)
    return Excerpt(value=beginning, missing=max(1, len(text) - len(_as_json(beginning))))


def _cut(value: JsonValue, room: int) -> tuple[JsonValue, int]:
    if isinstance(value, str):
        size = len(_as_json(value))
        return value if size <= room else _beginning(value, room), room - size
    if not isinstance(value, dict | list):
        return value, room - len(_as_json(value))
    names, kept = list(value) if isinstance(value, dict) else [""] * len(value), list[JsonValue]()
    for name, inner in zip(names, value.values() if isinstance(value, dict) else value, strict=True):
        room -= len(_as_json(name)) + PUNCTUATION
        if room <= 0:
            break
        item, room = _cut(inner, room)
        kept.append(item)
    return dict(zip(names, kept, strict=False)) if isinstance(value, dict) else kept, room


def _beginning(text: str, room: int) -> str:
    """Longest beginning of a text whose JSON has at most `room` characters."""
    return text[: bisect_right(range(1, room + 1), room, key=lambda length: len(_as_json(text[:length])))]


def with_step(
    state: RunState, pending: Pending, record: StepRecord, output: dict[str, JsonValue], *, leads: bool
) -> tuple[Note, ...]:
    """The notes with that of a step, before messages that the model has not seen yet. The step that `leads` its plan
    gets the plan's rationale.
    """
    plan, reflection = (state.plan, state.reflection) if leads else (None, None)
    note = StepNote(
        step=record.step,
        tool=record.tool,
        command=record.command,
        status=record.status,
        arguments=bounded(pending.action.arguments, MAX_ARGUMENTS),
        output=bounded(output, MAX_RESULT),
        asked=_asked_first(state, record),
        reflection=shorten_reflection(reflection) if reflection else None,
        rationale=shorten(plan.rationale, MAX_THOUGHT) if plan else "",
        expected=shorten(plan.expected_outcome, MAX_THOUGHT) if plan else "",
    )
    newest = len([*takewhile(_is_of_people, reversed(state.notes))])
    known = len(state.notes) - min(newest, max(0, state.words - state.shown))
    return *state.notes[:known], _sized(note), *state.notes[known:]


def _is_of_people(note: Note) -> bool:
    return isinstance(note, MessageNote | RulingNote)


def with_message(state: RunState, message: str, *, answers: str, untrusted: bool) -> RunState:
    said, answers = message[: MAX_UNTRUSTED if untrusted else MAX_MESSAGE], shorten(answers, MAX_MESSAGE)
    note = MessageNote(said=said, missing=len(message) - len(said), answers=answers, untrusted=untrusted)
    return _with_word(state, note)


def with_ruling(state: RunState, proposal: Plan | Framing, ruling: Ruled) -> RunState:
    note = RulingNote(verdict=ruling.verdict, reason=shorten(str(ruling.reason), MAX_MESSAGE), task=ruling.task)
    if isinstance(proposal, Framing):
        return _with_word(state, replace(note, framing=shorten(proposal.goal_statement, MAX_ARGUMENTS)))
    action, arguments = proposal.action, bounded(proposal.action.payload, MAX_ARGUMENTS)
    return _with_word(state, replace(note, call=f"{action.tool}.{action.command}", arguments=arguments))


def _with_word(state: RunState, note: Note) -> RunState:
    kept = [*state.notes, note]
    of_people = [*filter(_is_of_people, kept)]
    if len(of_people) > MOST_MESSAGES:
        kept.remove(of_people[0])
    return replace(state, notes=tuple(kept))


def _steps(state: RunState) -> list[StepNote]:
    return [note for note in state.notes if isinstance(note, StepNote)]


def overfull(state: RunState) -> bool:
    size = sum([note.size for note in state.notes if isinstance(note, StepNote | MemoryNote)])
    return size > state.brief.limits.max_notes and len(_steps(state)) >= _kept_steps(state) + SLACK_STEPS


def _kept_steps(state: RunState) -> int:
    return max(KEPT_STEPS, 1 + len(state.plan.also) if state.plan else 0)


def facts_suffice(state: RunState) -> bool:
    """True if compaction needs no model: facts are few, and each older step failed or is a source of one."""
    named = {step for fact in state.facts for step in steps_in(fact)}
    open_steps = [one for one in _older(state, _kept_steps(state)) if one.status != "error" and one.step not in named]
    return len(state.facts) <= MAX_MEMORY and not open_steps


def steps_in(text: str) -> Iterator[int]:
    for named in _STEPS_NAMED.findall(text):
        for first, last in _RANGE.findall(named):
            yield from range(int(first), min(int(last or first), int(first) + MAX_MEMORY) + 1)


def compacted(state: RunState, memory: Sequence[str], *, kept_steps: int | None = None) -> RunState:
    facts = tuple(map(_shorten_fact, filter(str.strip, memory)))[-MAX_MEMORY:]
    steps = _steps(state)
    kept = _kept_steps(state) if kept_steps is None else kept_steps
    given_up = {id(note) for note in steps[: max(0, len(steps) - kept)]}
    left = tuple(note for note in state.notes if not isinstance(note, MemoryNote) and id(note) not in given_up)
    known = {old.step: old for note in state.notes if isinstance(note, MemoryNote) for old in note.older}
    older = [known.get(one.step) or _remembered(one, steps) for one in _older(state, kept)[-REMEMBERED_STEPS:]]
    return replace(state, facts=facts, notes=(_sized(MemoryNote(facts=facts, older=tuple(older))), *left))


def _remembered(record: StepRecord, steps: Sequence[StepNote]) -> StepSummary:
    """A step with the beginnings of its arguments, so that it is not taken again, and of what it brought."""
    asked = [_as_json(note.arguments.value) for note in steps if note.step == record.step]
    texts = [shorten(" ".join(text.split()), MAX_REMEMBERED) for text in (*asked, record.summary)]
    return StepSummary(
        step=record.step, tool=record.tool, command=record.command, status=record.status, summary=": ".join(texts)
    )


def _older(state: RunState, kept_steps: int) -> tuple[StepRecord, ...]:
    return state.completed[: len(state.completed) - min(len(_steps(state)), kept_steps)]


def halved(state: RunState) -> RunState | None:
    """Gives up the older half of the steps, without a model call. None if there is at most one."""
    steps = len(_steps(state))
    return compacted(state, state.facts, kept_steps=steps // 2) if steps > 1 else None


def _sized(note: N) -> N:
    return replace(note, size=len(_as_json(note)))


def _asked_first(state: RunState, record: StepRecord) -> tuple[str, ...]:
    if not state.evidence or record.status == "budget":
        return ()
    asked = [one for one in state.evidence if one.step == record.step][:MOST_ASKED]
    length = MAX_THOUGHT // max(1, len(asked))
    named = [(one, shorten(one.query or f"{one.tool} {one.command}", length)) for one in asked]
    return tuple([f"{one.task}: {what} ({one.status})" for one, what in named])


def shorten_reflection(reflection: Reflection) -> Reflection:
    """The reflection as a note has it, without quotes and outcome."""
    return replace(
        reflection,
        summary=shorten(reflection.summary, MAX_THOUGHT),
        met=tuple(replace(met, quote="") for met in reflection.met[:MOST_CLAIMS]),
        unmet=reflection.unmet[:MOST_CLAIMS],
        facts=tuple(map(_shorten_fact, reflection.facts[:MOST_LEARNED])),
        outcome=None,
    )


MOST = 100
_SOURCE = re.compile(r"\(\s*steps?\b[^()]*\)", re.IGNORECASE)


def _shorten_fact(fact: str) -> str:
    """The beginning of a fact. It ends with no digit: half a number would name another step."""
    beginning = fact[:MAX_FACT]
    return fact if beginning == fact else beginning.rstrip("0123456789") or beginning


def merge_facts(known: tuple[str, ...], learned: tuple[str, ...]) -> tuple[str, ...]:
    if not learned:
        return known
    facts = {_bare(fact): fact for fact in known}
    for fact in map(_shorten_fact, learned):
        key = _bare(fact)
        facts[key] = _with_source(facts[key], fact) if key in facts else fact
    return tuple(facts.values())[-MOST:]


def _bare(fact: str) -> str:
    return " ".join(_SOURCE.sub("", fact).casefold().split()).rstrip(".;! ")


def _with_source(fact: str, again: str) -> str:
    sourced = " ".join((fact, *(source for source in _SOURCE.findall(again) if source not in fact)))
    return sourced if len(sourced) <= MAX_FACT else fact
