"""Compaction: notes that have grown too long are taken together, and a run of any length keeps to its bounds."""

from dataclasses import replace
from itertools import pairwise

import pytest

from agent_service import journal
from agent_service.core.effects import Publish
from agent_service.core.events import ToolReturned
from agent_service.core.notes import facts_suffice
from agent_service.core.phases import Phase, Unusable
from agent_service.core.state import RunState
from tests.core.cues import (
    PROOF,
    due,
    garbles,
    goes_on,
    plan,
    plans,
    reflection,
    reflects,
    replies,
    resume,
    returns,
    signal,
    unavailable,
)
from tests.core.model_cues import a_compacting_run, a_run_of, digests, page, too_long
from tests.core.rules.reading import entries
from tests.core.script import Script, abandons, asks, completes, fails


def kinds(run: Script) -> list[str]:
    return [note.kind for note in run.state.notes]


def steps_noted(run: Script) -> list[int]:
    return [int(note.text.split('"')[1]) for note in run.state.notes if note.kind == "step"]


# When


def test_notes_are_compacted_before_the_reflection_once_they_are_too_long() -> None:
    run = a_run_of(7, max_notes=2000)
    run >> goes_on(number=8) >> returns(output=page(8)) << asks("compact")
    assert len(kinds(run)) == 8
    run >> digests("the pages are known") << asks("reflect")


def test_notes_of_few_steps_are_not_worth_a_compaction_however_long_they_are() -> None:
    assert a_run_of(7, max_notes=10).outcomes == (asks("reflect"),)


def test_many_short_notes_are_not_compacted() -> None:
    assert a_run_of(12, length=10, max_notes=48_000).outcomes == (asks("reflect"),)


def test_a_step_is_told_as_done_though_its_notes_are_compacted_first() -> None:
    assert a_compacting_run().said == ["act: step 8: fetch ok"]


def test_a_compaction_is_no_step_and_no_decision_about_the_goal() -> None:
    run = a_compacting_run(max_steps=8)
    run >> digests("all is known") << asks("reflect")
    run >> reflects("done", PROOF) << completes()


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


def test_a_digest_of_nothing_leaves_a_memory_that_says_so() -> None:
    run = a_compacting_run() >> digests("", "  ")
    assert run.state.facts == ()
    assert "- nothing worth keeping" in run.state.notes[0].text


def test_a_digest_is_bounded_to_its_newest_forty_facts_of_four_hundred_characters() -> None:
    run = a_compacting_run() >> digests(*(f"{number} {'x' * 900}" for number in range(50)))
    assert [len(fact) for fact in run.state.facts] == [400] * 40
    assert run.state.facts[0].startswith("10 ")


def test_a_second_compaction_takes_the_first_memory_along() -> None:
    run = a_compacting_run() >> digests("from the first")
    for number in range(9, 13):
        run = run >> goes_on(number=number) >> returns(output=page(number))
    assert run.outcomes == (asks("compact"),)
    run >> digests("from both")
    assert kinds(run) == ["memory", "step", "step", "step", "step"]
    assert "from the first" not in run.state.notes[0].text


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


def test_notes_give_way_to_facts_that_name_each_older_step_without_asking_the_model() -> None:
    run = a_learning_run()
    run >> returns(output=page(8)) << asks("reflect")
    assert run.state.facts == tuple(f"Page {number} is long (step:{number})." for number in range(1, 8))
    assert steps_noted(run) == [5, 6, 7, 8]
    assert run.state.notes[0].text.startswith("<memory_of_older_steps>\n- Page 1 is long (step:1).\n")


def test_a_step_that_no_fact_names_is_worth_a_call() -> None:
    a_learning_run(every=2) >> returns(output=page(8)) << asks("compact")


@pytest.mark.parametrize("source", ["(step:3)", "(step 3)", "(steps 3 and 4)", "Step #3:", "see steps 1-4"])
def test_a_fact_names_its_steps_in_natural_words(source: str) -> None:
    others = tuple(f"Page {number} is long (step:{number})." for number in (1, 2, 4, 5, 6, 7))
    state = replace(a_learning_run().state, facts=(*others, f"Page 3 is long {source}."))
    assert facts_suffice(state)
    assert not facts_suffice(replace(state, facts=others))


def test_more_facts_than_a_memory_holds_are_worth_a_call() -> None:
    state = a_learning_run().state
    assert not facts_suffice(replace(state, facts=(*state.facts, *(f"fact {number}" for number in range(40)))))


def test_an_outage_puts_a_compaction_off() -> None:
    run = a_compacting_run() >> unavailable("try_again") >> due
    assert run.outcomes == (asks("compact"),)
    run >> unavailable("pause") >> resume() << asks("compact")


# A digest that cannot be used


def test_a_plan_is_no_digest() -> None:
    run = a_compacting_run()
    run >> plans() << asks("compact")
    assert run.told() == ("the reply is no decision of phase compact",)


def test_a_reflection_in_the_place_of_a_digest_is_taken_up_and_the_notes_stay_for_now() -> None:
    run = a_compacting_run(max_steps=8)
    run >> reflects("done", PROOF) << completes()
    assert len(kinds(run)) == 8


def test_a_digest_in_the_place_of_a_reflection_is_kept_and_the_reflection_asked_for_again() -> None:
    run = a_run_of(7)
    run >> digests("all is known") << asks("reflect")
    assert kinds(run) == ["memory", "step", "step", "step", "step"]


def test_a_digest_that_was_cut_may_be_longer() -> None:
    run = a_compacting_run() >> replies(Unusable(reason="cut", cut=True))
    assert run.state.asking is not None
    assert run.state.asking.longer


# A prompt that is too long


def test_a_prompt_that_is_too_long_gives_up_all_notes_but_the_newest_and_is_asked_again() -> None:
    run = a_run_of(3) >> signal("message", message="mind the tone")
    call = run.state.calls
    run >> too_long() << asks("reflect")
    assert kinds(run) == ["memory", "step", "person"]
    assert steps_noted(run) == [3]
    assert run.state.asking is not None
    assert (run.state.asking.call, run.state.asking.phase) == (call + 1, Phase.REFLECT)
    assert run.state.messages == ("mind the tone",)


def test_a_prompt_that_is_still_too_long_fails_the_run() -> None:
    run = a_run_of(3) >> too_long()
    run >> too_long() << (abandons(), fails("prompt_too_long"))


def test_a_first_prompt_that_is_too_long_fails_at_once() -> None:
    run = a_run_of(1)
    run >> too_long() << (abandons(), fails("prompt_too_long"))


def test_a_compaction_whose_own_prompt_is_too_long_is_left_out() -> None:
    run = a_compacting_run()
    run >> too_long() << asks("reflect")
    assert steps_noted(run) == [8]


def test_what_the_model_must_be_told_survives_a_prompt_that_is_too_long() -> None:
    run = a_run_of(3) >> garbles("two actions") >> too_long()
    assert run.told() == ("two actions",)
    assert run.state.asking is not None
    assert run.state.asking.repairs == 1


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


def test_the_entries_of_a_long_run_do_not_grow() -> None:
    assert largest_entry(a_run_of(STEPS, length=LONGEST)) <= largest_entry(a_run_of(10, length=LONGEST)) + 50


def largest_entry(script: Script) -> int:
    """The bytes of the largest entry of a journal, with what it tells the bus."""
    before: journal.Run | None = None
    largest = 0
    for moment in entries(script.story):
        commit = journal.commit_of(before, moment.event, moment.transition)
        before = journal.Run(state=commit.state, head=commit.entry.hash)
        said = sum(len(effect.body) for effect in moment.effects if isinstance(effect, Publish))
        largest = max(largest, len(commit.entry.event) + said)
    return largest
