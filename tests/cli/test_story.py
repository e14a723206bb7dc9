"""The story of a run: all of it at once, and line by line as it goes by."""

from datetime import UTC, datetime, timedelta
from typing import Any

from agent_service.cli.runs.story import Story, rows
from agent_service.run.journal import Entry
from agent_service.run.moments import retell
from agent_service.telling.history.timeline import Timeline
from tests.core.cues import PROOF, a_retrying_run, due, reflects, returns
from tests.core.script import Script
from tests.projections.journals import entries_of, priced_example, two_rounds, worked_example
from tests.projections.people import a_run_in_doubt, answers

LATER = datetime(2026, 12, 1, tzinfo=UTC)


def timeline_of(script: Script, entries: int | None = None) -> dict[str, Any]:
    timeline = Timeline()
    timeline.hear(retell(entries_of(script)[:entries]))
    return timeline.view(script.state.run_id).model_dump(mode="json", by_alias=True)


def told(script: Script) -> list[str]:
    return [str(row.title) for row in rows(timeline_of(script), LATER)]


def followed(script: Script, *, looks: range | None = None, after: int = 0) -> list[str]:
    """The lines of a story that looked after each of these entries."""
    entries, now = entries_of(script), 0
    story = Story(lambda: timeline_of(script, now), after)
    lines = []
    for now in looks or range(after + 1, len(entries) + 1):
        lines += [str(row.line) for row in story.so_far(as_sent(entries[now - 1]))]
    return lines


def as_sent(entry: Entry) -> dict[str, Any]:
    return {"seq": entry.seq, "at": entry.at.isoformat()}


def titles(lines: list[str]) -> list[str]:
    return [line[10:23].strip() for line in lines]


def test_a_run_that_an_answer_opened_again_has_two_ends() -> None:
    script = a_run_in_doubt() >> answers("it is there", "ran") >> reflects("done", PROOF)
    ends = [title for title in told(script) if "escalated" in title or "done" in title]
    assert [title.split()[-1] for title in ends] == ["escalated", "done"]
    assert [title for title in titles(followed(script)) if title.endswith(("escalated", "done"))] == ends


def test_a_run_is_told_by_phases_and_steps() -> None:
    assert told(worked_example()) == [
        "✓ accepted",
        "✓ frame",
        "✓ plan",
        "✓ step 1",
        "✓ reflect",
        "✓ plan",
        "✓ step 2",
        "✓ reflect",
        "✓ done",
    ]


def test_an_item_says_when_how_long_what_and_what_it_cost() -> None:
    story = rows(timeline_of(priced_example()), LATER)
    frame = next(row for row in story if row.name == "frame")
    assert (frame.time, frame.took) == ("12:00:02", timedelta(seconds=2))
    assert frame.spent == "920 tokens, 0.0042 USD"
    assert str(frame.line) == f"12:00:02  ✓ frame         2.0 s  {frame.text} (920 tokens, 0.0042 USD)"


def test_attempts_are_told_where_their_step_does_not_say_it_all() -> None:
    assert told(a_retrying_run())[3:] == ["▶ step 1", "✗  attempt 1", "… waits"]
    assert told(a_retrying_run() >> due)[3:] == ["▶ step 1", "✗  attempt 1", "· waits", "▶  attempt 2"]
    assert told(a_retrying_run() >> due >> returns())[3:7] == ["✓ step 1", "✗  attempt 1", "· waits", "▶ reflect"]


def test_what_goes_on_is_told_when_it_begins_and_when_it_is_over() -> None:
    steps = titles(followed(a_retrying_run() >> due >> returns()))[5:]
    assert steps == ["▶ step 1", "✗  attempt 1", "… waits", "▶  attempt 2", "✓ step 1", "▶ reflect"]


def test_what_a_step_gathers_is_told_below_it_and_ends_before_it() -> None:
    assert told(two_rounds())[3:-1] == [
        "✓ step 1",
        "↻  attempt 1",
        "✓  a",
        "↻   attempt 1",
        "✓   a.task-1",
        "✓   a.again",
        "✗  b",
        "✗  c",
        "↻  again",
        "✓  task-1",
        "✓  again",
    ]
    assert titles(followed(two_rounds()))[-4:] == ["▶  again", "✓  again", "✓ step 1", "▶ reflect"]
