"""Whatever happens to a run, it can be told: random stories of the core, rendered at their end and on the way."""

import json
import logging

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_service.core.tools.flights import flights
from agent_service.core.waiting import ForModel
from agent_service.run.moments import retell
from agent_service.telling.answers.entries import entry_views
from agent_service.telling.answers.runs import run_view
from agent_service.telling.heard import Heard
from agent_service.telling.history.timeline import Timeline
from agent_service.telling.log_lines import log_line
from agent_service.telling.pages.trail import broken_line, pages_of, trail
from tests.core.script import Script
from tests.core.stories import STORIES
from tests.projections.journals import commits_of

ANY_STORY = settings(
    max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


@ANY_STORY
@given(STORIES, st.data())
def test_every_journal_has_a_trail_and_so_has_each_of_its_beginnings(story: Script, data: st.DataObject) -> None:
    commits = commits_of(story)
    entries = [commit.entry for commit in commits]
    seen = data.draw(st.integers(1, len(entries)))
    now, then = trail(entries), trail(entries[:seen])
    assert now["plan.md"].count("\n## Next action\n") == 1
    assert now["decisions.md"].count("\n## ") == len(entries)
    assert now["trace.jsonl"].startswith(then["trace.jsonl"])
    assert broken_line(now["trace.jsonl"]) is None


@ANY_STORY
@given(STORIES)
def test_every_run_and_every_entry_has_a_view(story: Script) -> None:
    commits = commits_of(story)
    entries = [commit.entry for commit in commits]
    view = run_view(commits[-1].state, Heard(entries))
    assert view.model_validate_json(view.model_dump_json(by_alias=True, exclude_computed_fields=True)) == view
    assert [view.seq for view in entry_views(entries)] == list(range(1, len(entries) + 1))
    assert [view.status for view in entry_views(entries)] == [commit.state.status for commit in commits]


@ANY_STORY
@given(STORIES)
def test_every_run_has_a_timeline_of_which_only_what_it_is_in_is_open(story: Script) -> None:
    timeline = Timeline()
    for moment in retell(commit.entry for commit in commits_of(story)):
        timeline.hear([moment])
        view = timeline.view(moment.entry.run_id)
        still = {item.kind for item in view.items if item.ended_at is None}
        assert view.status == moment.after.status
        assert bool(still) is not moment.after.final
        sent = [flight.pending.step for flight in flights(moment.after.waiting) if flight.retry_at is None]
        open_attempts = [item.step or 0 for item in view.items if item.kind == "attempt" and item.ended_at is None]
        # Told in the order in which they were sent, held in the order of their steps.
        assert sorted(open_attempts) == sent
        assert [item.entry for item in view.items] == sorted(item.entry for item in view.items)
        assert ("phase" in still) is isinstance(moment.after.waiting, ForModel)


@ANY_STORY
@given(STORIES)
def test_every_model_call_is_one_line_and_one_more_for_a_plan_that_came_with_it(story: Script) -> None:
    for moment in retell(commit.entry for commit in commits_of(story)):
        phases = {"ModelReplied": 1 + (getattr(moment.event, "plan", None) is not None), "ModelUnavailable": 1}
        before = len(dict(pages_of([moment]))["trace.jsonl"].splitlines())
        if moment.entry.kind in phases:
            assert before == phases[moment.entry.kind]


@ANY_STORY
@given(STORIES)
def test_every_entry_is_one_line_of_the_log(story: Script) -> None:
    for moment in retell(commit.entry for commit in commits_of(story)):
        line = log_line(moment)
        assert line.message
        assert (line.level == logging.WARNING) is bool(line.fields.get("why"))
        json.dumps(line.fields, allow_nan=False)
