"""Rules over random stories: a push runs a part of them, the nightly run all."""

import pytest

from tests.core.rules import RULES, Rule
from tests.core.rules.reading import after
from tests.core.script import Script
from tests.core.stories import story

STORIES, OF_A_PUSH = 1000, 200


@pytest.fixture(scope="module")
def stories(pytestconfig: pytest.Config) -> list[Script]:
    return [story(number) for number in range(OF_A_PUSH if pytestconfig.getoption("--push") else STORIES)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_story_keeps(rule: Rule, stories: list[Script]) -> None:
    for number, script in enumerate(stories):
        try:
            rule(script.story)
        except AssertionError as broken:
            broken.add_note(f"in stories.story({number}), after event {first_broken(rule, script)}")
            raise


def first_broken(rule: Rule, script: Script) -> int:
    for number in range(1, len(script.story)):
        try:
            rule(script.story[:number])
        except AssertionError:
            return number
    return len(script.story)


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
    states = [after(change) for script in stories for change in script.story]
    assert {(str(state.status), state.ending_class) for state in states} >= ENDINGS
