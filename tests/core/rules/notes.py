"""Rules of notes: appended and kept as they are, taken together only when too long, and never what people said.

They say in their own way what a compaction may do: it gives up the notes of older steps and the memory before it. A
step that was planned before a person spoke is noted before that.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict

from agent_service.core.events import ModelReplied, ModelUnavailable, SignalReceived, ToolReturned
from agent_service.core.noted import MemoryNote, MessageNote, Note, RulingNote, StepNote
from agent_service.core.phases import Digest, Phase, Reflection
from agent_service.core.state import RunState
from tests.core.rules.reading import Story, after, entries, reopened
from tests.core.script import Moment

MORE_STEPS = 4
"""More notes of steps than are kept, from which on they may be taken together."""
LONGEST_STEP, LONGEST_MEMORY, LONGEST_MESSAGE = 30_000, 24_000, 2200
UNTOUCHED = ("done_items", "framing", "plan", "outline", "messages", "completed", "artifacts", "step", "reflection")


def is_compaction(moment: Moment) -> bool:
    """Whether the moment may give up notes: a digest, or none after the last repair, a prompt that is too long, or a
    step after which the facts were enough."""
    if moment.before is None or moment.transition.ignored:
        return False
    if finished_by(moment):
        return len(steps_of(after(moment).notes)) < len(steps_of(moment.before.notes)) + finished_by(moment)
    asking = moment.before.asking
    if isinstance(moment.event, ModelUnavailable):
        return asking is not None and moment.event.remedy == "shrink"
    if asking is None or not isinstance(moment.event, ModelReplied):
        return False
    if asking.phase is Phase.COMPACT:
        return not isinstance(moment.event.decision, Reflection)
    return asking.phase is Phase.REFLECT and isinstance(moment.event.decision, Digest)


def finished_by(moment: Moment) -> int:
    """How many steps are finished with the moment."""
    return len(after(moment).completed) - len(moment.before.completed) if moment.before else 0


def notes_before(moment: Moment) -> tuple[Note, ...]:
    return moment.before.notes if moment.before else ()


def steps_of(notes: tuple[Note, ...]) -> list[StepNote]:
    return [note for note in notes if isinstance(note, StepNote)]


def said_by_people(notes: Iterable[Note]) -> list[Note]:
    return [note for note in notes if isinstance(note, MessageNote | RulingNote)]


def notes_are_only_appended_but_for_a_compaction(story: Story) -> None:
    for moment in story:
        if not is_compaction(moment):
            before, now = notes_before(moment), after(moment).notes
            for kind in ("message", "ruling", "memory", "step"):
                known = [note for note in before if note.kind == kind]
                assert [note for note in now if note.kind == kind][: len(known)] == known
            assert len(now) <= len(before) + 1 + finished_by(moment) or reopened(moment)


def a_compaction_gives_up_older_steps_and_nothing_else(story: Story) -> None:
    for moment in story:
        before, now = notes_before(moment), after(moment).notes
        if not is_compaction(moment) or now == before:
            continue
        assert [note.kind == "memory" for note in now] == [True, *[False] * len(now[1:])]
        assert said_by_people(now) == said_by_people(before)
        kept, finished = steps_of(now), finished_by(moment)
        too_long = isinstance(moment.event, ModelUnavailable)
        most = newest_steps(after(moment), before) if too_long else kept_steps(after(moment))
        assert len(kept) == min(most, len(steps_of(before)) + finished)
        assert kept[: len(kept) - finished] == steps_of(before)[len(steps_of(before)) - len(kept) + finished :]


def newest_steps(state: RunState, before: tuple[Note, ...]) -> int:
    """Those of the newest plan, while there are others to give up before them."""
    planned = len(state.plan.actions) if state.plan else 1
    return planned if len(steps_of(before)) > planned else 1


def kept_steps(state: RunState) -> int:
    return max(4, len(state.plan.actions) if state.plan else 0)


def a_compaction_leaves_the_rest_of_the_run_as_it_is(story: Story) -> None:
    for moment in story:
        if is_compaction(moment) and not finished_by(moment) and not after(moment).final:
            assert moment.before is not None
            for name in UNTOUCHED:
                assert getattr(after(moment), name) == getattr(moment.before, name)


def notes_are_compacted_only_when_they_are_too_long(story: Story) -> None:
    for moment in story:
        if isinstance(moment.event, ToolReturned) and moment.asks:
            assert is_too_long(after(moment)) == (moment.asks.phase is Phase.COMPACT)


def is_too_long(state: RunState) -> bool:
    length = sum(note.size for note in state.notes if isinstance(note, StepNote | MemoryNote))
    return len(steps_of(state.notes)) >= kept_steps(state) + MORE_STEPS and length > state.brief.limits.max_notes


def every_finished_step_has_one_note_and_the_first_of_its_plan_the_thought_before_it(story: Story) -> None:
    for moment in entries(story):
        known, finished = notes_before(moment), finished_by(moment)
        new = [note for note in steps_of(after(moment).notes) if note not in known]
        assert [note.step for note in new] == [r.step for r in after(moment).completed][-finished:] * bool(finished)
        for note in new:
            assert moment.before is not None
            thought, leads = moment.before.reflection, note.step <= first_of_plan(moment.before)
            assert (note.reflection is not None) == (thought is not None and leads)
            assert after(moment).reflection is (None if leads else thought)


def first_of_plan(state: RunState) -> int:
    return state.step - len(state.plan.also if state.plan else ())


def what_people_said_is_a_note_for_ever(story: Story) -> None:
    said: list[str] = []
    for moment in story:
        event = moment.event
        if isinstance(event, SignalReceived) and event.signal.message and not moment.transition.ignored:
            said.append(event.signal.message)
        assert [note.said for note in after(moment).notes if isinstance(note, MessageNote)] == said


def notes_are_bounded(story: Story) -> None:
    known: tuple[Note, ...] = ()
    for moment in story:
        notes, before = after(moment).notes, {id(note) for note in known}
        known = notes
        for note in (note for note in notes if id(note) not in before):
            longest = {"step": LONGEST_STEP, "memory": LONGEST_MEMORY}.get(note.kind, LONGEST_MESSAGE)
            assert len(json.dumps(asdict(note), ensure_ascii=False)) <= longest
        assert len([note for note in notes if note.kind == "memory"]) <= 1
