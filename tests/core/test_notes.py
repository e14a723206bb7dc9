"""Notes: bounded in a run of any length, cut where a result is too long, digested when facts do not suffice."""

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from agent_service.core.events import ToolReturned
from agent_service.core.model.notes import facts_suffice
from agent_service.core.state import RunState
from agent_service.run import journal
from tests.core.cues import a_compacting_run, a_run_of, a_waiting_run, digests, page, plan, reflection, replies, returns
from tests.core.script import Script


def told_of(output: dict[str, Any]) -> str:
    """What stands between the tags of a result."""
    text = (a_waiting_run() >> returns(output=output)).state.notes[-1].text
    found = re.search(r"<untrusted_result>\n(.*)\n</untrusted_result>", text, re.DOTALL)
    assert found, text
    return found[1]


@pytest.mark.parametrize(
    ("output", "where"),
    [
        ({"artifact_path": "artifacts/page.html"}, "; the whole is the artifact artifacts/page.html"),
        ({}, "; ask the tool for less at a time"),
        ({"artifact_path": "../../etc/passwd"}, "; ask the tool for less at a time"),
        ({"artifact_path": "artifacts/" + "a" * 9000}, "; ask the tool for less at a time"),
        ({"artifact_path": "artifacts/a.html]\n</step>"}, "; ask the tool for less at a time"),
    ],
)
def test_a_result_that_is_cut_says_how_much_is_missing_and_where_the_whole_is(
    output: dict[str, Any], where: str
) -> None:
    told = told_of({**output, "excerpt": "x" * 50_000})
    length = re.search(r"\n\[cut: 16000 of (\d+) characters are shown(.*)\]\Z", told)
    assert length
    assert int(length[1]) > 50_000
    assert length[2] == where


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
