"""What holds for any sequence of events."""

import pytest
from hypothesis import given

from agent_service.core.waiting import Status
from agent_service.run import journal, messages
from agent_service.run.moments import retell
from schemas import subjects
from schemas.events import INBOUND, OUTBOUND
from tests.core.rules import RULES, Rule
from tests.core.rules.reading import after, commits_of, entries
from tests.core.script import Script
from tests.core.stories import STORIES, told

TOLD = 800


@pytest.fixture(scope="module")
def stories() -> list[Script]:
    return [told(number) for number in range(TOLD)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_story_that_is_told_keeps(rule: Rule, stories: list[Script]) -> None:
    for number, script in enumerate(stories):
        try:
            rule(script.story)
        except AssertionError as broken:
            broken.add_note(f"in story {number}: stories.told({number})")
            raise


@given(STORIES)
def test_no_story_is_found_that_breaks_a_rule(script: Script) -> None:
    for rule in RULES:
        rule(script.story)


# The journal is the truth


@given(STORIES)
def test_the_journal_folds_to_the_same_states_and_the_same_facts(script: Script) -> None:
    commits = commits_of(script.story)
    replayed = list(retell(commit.entry for commit in commits))
    assert [moment.after for moment in replayed] == [commit.state for commit in commits]
    assert [moment.facts for moment in replayed] == [commit.facts for commit in commits]
    assert [None, *(moment.after for moment in replayed)][-1] == script.state
    assert journal.flaw_in_chain([commit.entry for commit in commits]) is None


@given(STORIES)
def test_states_and_events_survive_being_written_and_read(script: Script) -> None:
    brief = ""
    grown: dict[str, list[str]] = {}
    for moment, commit in zip(entries(script.story), commits_of(script.story), strict=True):
        brief = journal.encode_brief(commit.brief) if commit.brief else brief
        for growth in commit.growth:
            grown[growth.field] = [*grown.get(growth.field, [])[growth.dropped :], *growth.added]
        items = [(field, item) for field, some in grown.items() for item in some]
        assert journal.decode_state(journal.encode_state(commit.state), brief, items) == commit.state
        assert commit.entry.decoded() == moment.event


@given(STORIES)
def test_what_is_said_is_what_its_model_would_write_byte_for_byte(script: Script) -> None:
    for one in (message for moment in script.story for message in moment.messages):
        kind = subjects.TOOL_REQUEST if one.subject.startswith(subjects.TOOL_REQUEST) else one.subject
        model = (INBOUND | OUTBOUND)[kind]
        assert model.model_validate_json(one.body).body() == one.body


@given(STORIES)
def test_what_is_said_again_was_said_before_word_for_word(script: Script) -> None:
    said = {one.key: one for moment in script.story for one in moment.messages}
    for moment in script.story:
        for again in messages.outstanding(after(moment)):
            assert after(moment).status is Status.QUEUED or said[again.key] == again


# The stories are worth telling

SHORT = {"cost", "time", "attempts", "steps", "tokens", "reframes"}
ENDINGS = {
    ("done", "completed"),
    ("cancelled", "cancelled"),
    ("failed", "overloaded"),
    ("failed", "prompt_too_long"),
    ("failed", "internal"),
    ("paused", "overloaded"),
    *((status, f"budget_{budget}") for status in ("escalated", "paused") for budget in SHORT),
    *(("escalated", why) for why in ("protocol_violation", "tool_exhausted", "in_doubt", "configuration")),
    *(("escalated", why) for why in ("stuck_loop", "done_refused", "invalid_decision", "model", "model_refused")),
    *(("escalated", why) for why in ("overloaded", "unanswered", "approval_expired")),
}


def test_the_stories_end_and_pause_in_every_way(stories: list[Script]) -> None:
    states = [after(moment) for script in stories for moment in script.story]
    assert {(str(state.status), state.ending_class) for state in states} >= ENDINGS
