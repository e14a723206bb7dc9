"""Compaction: notes that have grown too long are taken together, and a run of any length keeps to its bounds."""

from dataclasses import replace
from itertools import pairwise

import pytest

from agent_service.core.events import ToolReturned
from agent_service.core.model.notes import facts_suffice
from agent_service.core.state import RunState
from agent_service.run import journal
from tests.core.cues import (
    plan,
    reflection,
    replies,
    returns,
)
from tests.core.model_cues import a_compacting_run, a_run_of, digests, page
from tests.core.script import Script, asks


def kinds(run: Script) -> list[str]:
    return [note.kind for note in run.state.notes]


def steps_noted(run: Script) -> list[int]:
    return [int(note.text.split('"')[1]) for note in run.state.notes if note.kind == "step"]


# When


# What stays, and what goes


def test_a_digest_takes_the_place_of_the_facts_and_of_all_but_the_newest_four_steps() -> None:
    run = a_run_of(7, max_notes=2000)
    run >> replies(reflection("continue", facts=("an old fact",)), plan=plan(number=8)) >> returns(output=page(8))
    run >> digests("page 1 has one heading", "page 2 is empty")
    assert run.state.facts == ("page 1 has one heading", "page 2 is empty")
    assert kinds(run) == ["memory", "step", "step", "step", "step"]
    assert steps_noted(run) == [5, 6, 7, 8]
    assert run.state.notes[0].text.startswith(
        "<memory_of_older_steps>\n- page 1 has one heading\n- page 2 is empty\n<untrusted_result>\n"
    )


def test_a_memory_has_a_line_for_each_older_step_with_the_beginning_of_what_it_brought() -> None:
    (memory, *_) = (a_compacting_run() >> digests("all is known")).state.notes
    lines = [line for line in memory.text.splitlines() if line.startswith("- step ")]
    assert lines[0] == "- step 1, fetch handle, ok: result of step 1"
    assert lines[1] == f"- step 2, fetch handle, ok: page 2: {'x' * 112}…"
    assert len(lines) == 4


def test_a_digest_is_bounded_to_its_newest_forty_facts_of_four_hundred_characters() -> None:
    run = a_compacting_run() >> digests(*(f"{number} {'x' * 900}" for number in range(50)))
    assert [len(fact) for fact in run.state.facts] == [400] * 40
    assert run.state.facts[0].startswith("10 ")


# What is paid for a compaction


@pytest.mark.parametrize("scarce", [{"max_tokens": 1100}, {"max_cost_usd": 0.11}])
def test_a_run_that_has_few_calls_left_gives_up_older_notes_without_one(scarce: dict[str, float]) -> None:
    run = a_compacting_run(**scarce)
    assert run.outcomes == (asks("reflect"),)
    assert kinds(run) == ["memory", "step", "step", "step", "step"]
    assert a_compacting_run(**{name: 10 * limit for name, limit in scarce.items()}).outcomes == (asks("compact"),)


# When no call is needed


def a_learning_run(*, every: int = 1) -> Script:
    """Seven steps, of whose results a fact was noted each time, or every so many times; the eighth is planned."""
    run = a_run_of(1, max_notes=2000)
    for number in range(2, 9):
        facts = (f"Page {number - 1} is long (step:{number - 1}).",) if (number - 1) % every == 0 else ()
        run = run >> replies(reflection("continue", facts=facts), plan=plan(number=number))
        run = run >> returns(output=page(number)) if number < 8 else run
    return run


@pytest.mark.parametrize("source", ["(step:3)", "(step 3)", "(steps 3 and 4)", "Step #3:", "see steps 1-4"])
def test_a_fact_names_its_steps_in_natural_words(source: str) -> None:
    others = tuple(f"Page {number} is long (step:{number})." for number in (1, 2, 4, 5, 6, 7))
    state = replace(a_learning_run().state, facts=(*others, f"Page 3 is long {source}."))
    assert facts_suffice(state)
    assert not facts_suffice(replace(state, facts=others))


# A digest that cannot be used


# A prompt that is too long


# A run of any length

STEPS = 200
LONGEST = 6000
"""Characters of a result in the long run; the bound of what is noted of one."""


@pytest.fixture(scope="module")
def long_run() -> list[RunState]:
    """A run of two hundred steps with long results, as it stood after each of them."""
    run = a_run_of(STEPS, length=LONGEST)
    states = [moment.transition.state for moment in run.story if isinstance(moment.event, ToolReturned)]
    return [state for state in states if state is not None]


def test_the_notes_of_a_long_run_stay_bounded(long_run: list[RunState]) -> None:
    lengths = [sum(len(note.text) for note in state.notes) for state in long_run]
    assert len(lengths) == STEPS
    assert max(lengths) <= max(lengths[:20]) + 3000 < 60_000


def test_what_is_written_of_a_long_run_stays_the_same_from_step_to_step(long_run: list[RunState]) -> None:
    """Without the newest result, which is as long as it is."""
    rows = [len(journal.encode_state(replace(state, last_result=None))) for state in long_run]
    assert max(rows) <= min(rows) + 100
    added = [added_between(before, state) for before, state in pairwise(long_run)]
    assert max(added) < 10 * LONGEST, "a compaction writes its memory and the notes that it keeps"
    assert sum(added[-50:]) <= sum(added[20:70]) * 1.2


def added_between(before: RunState, state: RunState) -> int:
    return sum(len(item) for growth in journal.growth_of(before, state) for item in growth.added)
