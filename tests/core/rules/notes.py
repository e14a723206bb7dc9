"""Rules of notes: they are appended and never changed; only step notes are compacted, and only when too long.

A compaction replaces notes of older steps and the memory before it. A step that was planned before a person spoke
is noted before their message.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict

from agent_service.core.events import ModelUnavailable, SignalReceived, ToolReturned
from agent_service.core.phases import Phase
from agent_service.core.state import MemoryNote, MessageNote, Note, RulingNote, RunState, StepNote
from tests.core.rules.reading import Story, after, entries, reopened
from tests.core.script import ChangeRecord

MORE_STEPS = 4
"""More notes of steps than are kept, from which on they may be taken together."""
LONGEST_STEP, LONGEST_MEMORY, LONGEST_MESSAGE = 30_000, 24_000, 2200
UNTOUCHED = ("done_items", "framing", "plan", "outline", "messages", "completed", "artifacts", "step", "reflection")


def is_compaction(change: ChangeRecord) -> bool:
    memories = [
        [note for note in notes if note.kind == "memory"] for notes in (notes_before(change), after(change).notes)
    ]
    return memories[0] != memories[1]


def finished_by(change: ChangeRecord) -> int:
    return len(after(change).completed) - len(change.before.completed) if change.before else 0


def notes_before(change: ChangeRecord) -> tuple[Note, ...]:
    return change.before.notes if change.before else ()


def steps_of(notes: tuple[Note, ...]) -> list[StepNote]:
    return [note for note in notes if isinstance(note, StepNote)]


def said_by_people(notes: Iterable[Note]) -> list[Note]:
    return [note for note in notes if isinstance(note, MessageNote | RulingNote)]


def notes_are_only_appended_but_for_a_compaction(story: Story) -> None:
    for change in story:
        if not is_compaction(change):
            before, now = notes_before(change), after(change).notes
            for kind in ("message", "ruling", "memory", "step"):
                known = [note for note in before if note.kind == kind]
                assert [note for note in now if note.kind == kind][: len(known)] == known
            assert len(now) <= len(before) + 1 + finished_by(change) or reopened(change)


def a_compaction_gives_up_older_steps_and_nothing_else(story: Story) -> None:
    for change in story:
        before, now = notes_before(change), after(change).notes
        if not is_compaction(change):
            continue
        assert [note.kind == "memory" for note in now] == [True, *[False] * len(now[1:])]
        assert said_by_people(now) == said_by_people(before)
        kept, finished = steps_of(now), finished_by(change)
        too_long = isinstance(change.event, ModelUnavailable)
        most = len(steps_of(before)) // 2 if too_long else kept_steps(after(change))
        assert len(kept) == min(most, len(steps_of(before)) + finished)
        assert kept[: len(kept) - finished] == steps_of(before)[len(steps_of(before)) - len(kept) + finished :]


def kept_steps(state: RunState) -> int:
    return max(4, len(state.plan.actions) if state.plan else 0)


def a_compaction_leaves_the_rest_of_the_run_as_it_is(story: Story) -> None:
    for change in story:
        if is_compaction(change) and not finished_by(change) and not after(change).final:
            assert change.before is not None
            for name in UNTOUCHED:
                assert getattr(after(change), name) == getattr(change.before, name)


def notes_are_compacted_only_when_they_are_too_long(story: Story) -> None:
    for change in story:
        if isinstance(change.event, ToolReturned) and change.asks:
            assert is_too_long(after(change)) == (change.asks.phase is Phase.COMPACT)


def is_too_long(state: RunState) -> bool:
    length = sum(note.size for note in state.notes if isinstance(note, StepNote | MemoryNote))
    return len(steps_of(state.notes)) >= kept_steps(state) + MORE_STEPS and length > state.brief.limits.max_notes


def every_finished_step_has_one_note_and_the_first_of_its_plan_the_thought_before_it(story: Story) -> None:
    for change in entries(story):
        known, finished = notes_before(change), finished_by(change)
        new = [note for note in steps_of(after(change).notes) if note not in known]
        assert [note.step for note in new] == [r.step for r in after(change).completed][-finished:] * bool(finished)
        for note in new:
            assert change.before is not None
            thought, leads = change.before.reflection, note.step <= first_of_plan(change.before)
            assert (note.reflection is not None) == (thought is not None and leads)
            assert after(change).reflection is (None if leads else thought)


def first_of_plan(state: RunState) -> int:
    return state.step - len(state.plan.also if state.plan else ())


def what_people_said_is_a_note_for_ever(story: Story) -> None:
    said: list[str] = []
    for change in story:
        event = change.event
        if isinstance(event, SignalReceived) and event.signal.message and not change.transition.ignored:
            said.append(event.signal.message)
        assert [note.said for note in after(change).notes if isinstance(note, MessageNote)] == said


def notes_are_bounded(story: Story) -> None:
    known: tuple[Note, ...] = ()
    for change in story:
        notes, before = after(change).notes, {id(note) for note in known}
        known = notes
        for note in (note for note in notes if id(note) not in before):
            longest = {"step": LONGEST_STEP, "memory": LONGEST_MEMORY}.get(note.kind, LONGEST_MESSAGE)
            assert len(json.dumps(asdict(note), ensure_ascii=False)) <= longest
        assert len([note for note in notes if note.kind == "memory"]) <= 1
