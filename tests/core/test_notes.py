"""Notes and evidence: bounded in a run of any length."""

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

from agent_service.core import continuing
from agent_service.core.brief import Continuations
from agent_service.core.events import ToolReturned
from agent_service.core.notes import MAX_FACT, bounded, facts_suffice
from agent_service.core.phases import Action
from agent_service.core.state import Excerpt, MemoryNote, RunState, StepNote
from agent_service.core.waiting import Pending, TaskResult
from agent_service.run import journal
from schemas.continuation import LONGEST_TEXT
from schemas.events import MAX_MESSAGE_BYTES
from tests.core.cues import comes, digests, plan, reflection, replies, returns
from tests.core.rules.reading import after
from tests.core.script import NOON, Script
from tests.core.words import a_compacting_run, a_run_of, page, run_at


def noted(output: dict[str, Any]) -> Excerpt:
    note = (run_at("run waiting") >> returns(output=output)).state.notes[-1]
    assert isinstance(note, StepNote)
    return note.output


def test_a_result_that_is_cut_keeps_what_names_it_and_sums_it_up_and_counts_what_is_missing() -> None:
    many = {f"field {number}": ["x" * 100, {"y": None, "z": 1}] for number in range(500)}
    kept = noted({**many, "excerpt": "e" * 50_000, "summary": "s" * 3000, "artifact_path": "artifacts/page.html"})
    assert [*kept.value][:3] == ["artifact_path", "summary", "field 0"]
    assert "excerpt" not in kept.value
    length = len(json.dumps(kept.value))
    assert 14_000 < length < 17_000
    assert kept.missing + length > 100_000


def test_a_result_of_any_shape_is_kept_in_about_as_many_characters_as_may_be() -> None:
    values: tuple[Any, ...] = ([[]] * 50_000, {"": [None] * 50_000}, "x" * 50_000, [10**100] * 1000, "\x01" * 50_000)
    for value in values:
        kept = noted({"summary": "long", "value": value})
        assert kept.missing > 0
        assert len(json.dumps(kept.value, ensure_ascii=False)) < 17_000


def test_what_is_missing_of_a_result_is_counted_as_json_and_a_complete_result_misses_nothing() -> None:
    lines = {"excerpt": "line\n" * 2800}
    kept = noted(lines)
    assert len(json.dumps(kept.value)) + kept.missing == len(json.dumps(lines))
    fields = {f"{number:04}": 0 for number in range(1460)}
    assert (noted(fields).value, noted(fields).missing) == (fields, 0)


def test_a_memory_has_a_line_for_each_older_step_with_the_beginning_of_what_it_brought() -> None:
    (memory, *_) = (a_compacting_run() >> digests("all is known")).state.notes
    assert isinstance(memory, MemoryNote)
    first, second = [old.summary for old in memory.older[:2]]
    assert first == '{"url": "https://example.org"}: result of step 1'
    assert second == '{"number": 2}: page 2: ' + "x" * 112 + "…"
    assert (len(memory.older), memory.older[0].tool) == (4, "fetch")


def test_a_digest_is_bounded_to_its_newest_forty_facts_of_four_hundred_characters() -> None:
    run = a_compacting_run() >> digests(*(f"{number} {'x' * 900}" for number in range(50)))
    assert [len(fact) for fact in run.state.facts] == [400] * 40
    assert run.state.facts[0].startswith("10 ")


def test_no_half_of_a_number_names_a_source() -> None:
    for source in ("(step 12)", "(steps 3, 4, 12)", "Steps 3, 12"):
        begins = "x" * (MAX_FACT + 1 - len(source.rstrip(")")))
        run = a_compacting_run() >> digests(begins + source)
        assert run.state.facts == (begins + source.partition("12")[0],)


def a_learning_run() -> Script:
    """Seven steps, each the source of a fact; the eighth is planned."""
    run = a_run_of(1, max_notes=2000)
    for number in range(2, 9):
        learned = reflection("continue", facts=(f"Page {number - 1} is long (step:{number - 1}).",))
        run = run >> replies(learned, plan=plan(number=number))
        run = run >> returns(output=page(number)) if number < 8 else run
    return run


def test_a_fact_names_its_steps_in_natural_words() -> None:
    others = tuple(f"Page {number} is long (step:{number})." for number in (1, 2, 4, 5, 6, 7))
    state = replace(a_learning_run().state, facts=others)
    assert not facts_suffice(state)
    for source in (
        *("(step:3)", "(step 3)", "(steps 3 and 4)", "Step #3:", "see steps 1-4"),
        *("(steps 1, 2 and 3)", "(steps 1, 2, and 3)", "(step 2 & 3)", "steps 2–4", "steps 1 to 3"),  # noqa: RUF001
    ):
        assert facts_suffice(replace(state, facts=(*others, f"Page 3 is long {source}."))), source


# A run of any length

STEPS = 200
LONGEST = 6000
"""Characters of a result in the long run; the bound of what is noted of one."""


def test_the_notes_of_a_long_run_stay_bounded_and_what_is_written_the_same_from_step_to_step() -> None:
    """The newest result, which has its own bound, does not count."""
    run = a_run_of(STEPS, length=LONGEST)
    states = [after(change) for change in run.story if isinstance(change.event, ToolReturned)]
    lengths = [sum(len(repr(note)) for note in state.notes) for state in states]
    assert len(lengths) == STEPS
    assert max(lengths) <= max(lengths[:20]) + 3000 < 60_000
    rows = [len(journal.encode_state(replace(state, last_output=None))) for state in states]
    assert max(rows) <= min(rows) + 100
    added = [added_between(before, state) for before, state in pairwise(states)]
    assert max(added) < 10 * LONGEST, "a compaction writes its memory and the notes that it keeps"
    assert sum(added[-50:]) <= sum(added[20:70]) * 1.2


def added_between(before: RunState, state: RunState) -> int:
    return sum(len(item) for growth in journal.growth_of(before, state) for item in growth.added)


# Evidence

LARGEST_INPUT = 256 * 1024
ASKER = Pending(
    step=1,
    task="again",
    round=11,
    action=Action(tool="fetch", command="handle", arguments={}),
    requested_at=NOON,
    deadline_at=NOON,
    until=NOON,
)


def brought(number: int, text: str) -> TaskResult:
    output = bounded({"summary": text, "artifact_path": text, "output": {"text": text}}, continuing.MAX_KEPT).value
    asked: dict[str, Any] = {"tool": "knowledge", "command": "search", "query": text[:LONGEST_TEXT], "profile": "fast"}
    place: dict[str, Any] = {"step": 1, "task": f"t{number}", "round": 1 + number % 10, "place": number}
    return TaskResult(kind="retrieve", status="ok", output=output, **place, **asked)


def test_what_a_thousand_tasks_brought_leaves_room_for_the_largest_input() -> None:
    for text in ("a", "\x01", '"', "\u6f22", "\U0001f600"):
        evidence = [brought(number, text * 40_000) for number in range(1000)]
        handed = continuing.task_results(evidence, ASKER, Continuations(max_plugin_continuations=10))
        assert len(json.loads(json.dumps(handed))["evidence"]) == 1000
        assert continuing.size_of(handed) + LARGEST_INPUT < MAX_MESSAGE_BYTES - 4096, text


def test_what_does_not_fit_into_a_message_is_refused_before_anything_is_asked() -> None:
    run = run_at('run planning ; plan fetch text=x*1000000 ; continue ["a", "b"]')
    run = run >> comes("a", output={"summary": "y" * 25_000}) >> comes("b", output={"summary": "y" * 25_000})
    assert (run.outcomes, run.state.pendings) == (("ask reflect",), ())
    assert run.state.last_output is not None
    assert run.state.last_output["class"] == "too_large"
