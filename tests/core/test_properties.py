"""What holds for any sequence of events."""

from collections.abc import Iterator

import pytest
from hypothesis import given

from agent_service import journal
from agent_service.core.announcing import outstanding
from agent_service.core.decide import decide
from agent_service.core.effects import Publish
from agent_service.core.waiting import Status
from schemas import subjects
from schemas.events import INBOUND, OUTBOUND
from tests.core.rules import RULES, Rule
from tests.core.rules.reading import Story, after, entries
from tests.core.script import Script
from tests.core.sights import sights
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


def written(story: Story) -> Iterator[journal.Commit]:
    """What a store is given, entry by entry."""
    run: journal.Run | None = None
    for moment in entries(story):
        commit = journal.commit_of(run, moment.event, moment.transition)
        run = journal.Run(state=commit.state, head=commit.entry.hash)
        yield commit


@given(STORIES)
def test_the_journal_folds_to_the_same_states_and_the_same_effects(script: Script) -> None:
    commits = list(written(script.story))
    rehearsed = list(journal.rehearse(commit.entry for commit in commits))
    assert [transition.state for _, transition in rehearsed] == [commit.state for commit in commits]
    effects = [transition.effects for _, transition in rehearsed]
    assert effects == [moment.effects for moment in entries(script.story)]
    assert [None, *(transition.state for _, transition in rehearsed)][-1] == script.state
    assert journal.flaw_in_chain([commit.entry for commit in commits]) is None


@given(STORIES)
def test_states_and_events_survive_being_written_and_read(script: Script) -> None:
    brief = ""
    grown: dict[str, list[str]] = {}
    for moment, commit in zip(entries(script.story), written(script.story), strict=True):
        brief = journal.encode_brief(commit.brief) if commit.brief else brief
        for growth in commit.growth:
            grown[growth.field] = [*grown.get(growth.field, [])[growth.dropped :], *growth.added]
        items = [(field, item) for field, some in grown.items() for item in some]
        assert journal.decode_state(journal.encode_state(commit.state), brief, items) == commit.state
        assert commit.entry.decoded() == moment.event


@given(STORIES)
def test_a_run_goes_on_from_what_was_read_as_from_what_is_in_memory(script: Script) -> None:
    middle = script.story[: len(script.story) // 2 + 1]
    state, head = after(middle[-1]), [commit.entry.hash for commit in written(middle)][-1]
    items = ((growth.field, item) for growth in journal.growth_of(None, state) for item in growth.added)
    read = journal.decode_state(journal.encode_state(state), journal.encode_brief(state.brief), items)
    remembered = [commit.entry for commit in written(script.story)][len(entries(middle)) :]
    run = journal.Run(state=read, head=head)
    for entry in remembered:
        commit = journal.commit_of(run, entry.decoded(), decide(run.state, entry.decoded()))
        assert commit.entry == entry
        run = journal.Run(state=commit.state, head=commit.entry.hash)


@given(STORIES)
def test_what_is_said_is_what_its_model_would_write_byte_for_byte(script: Script) -> None:
    said = [effect for moment in script.story for effect in moment.effects if isinstance(effect, Publish)]
    for effect in said:
        kind = subjects.TOOL_REQUEST if effect.subject.startswith(subjects.TOOL_REQUEST) else effect.subject
        model = (INBOUND | OUTBOUND)[kind]
        assert model.model_validate_json(effect.body).body() == effect.body


@given(STORIES)
def test_what_is_said_again_was_said_before_word_for_word(script: Script) -> None:
    said = {e.key: e for moment in script.story for e in moment.effects if isinstance(e, Publish)}
    for moment in script.story:
        for again in outstanding(after(moment)):
            assert after(moment).status is Status.QUEUED or said[again.key] == again


# The stories are worth telling

FINAL = ("done", "escalated", "failed", "cancelled")
LIVE = ("queued", "running", "paused")
BUDGETS = ("steps", "tokens", "cost", "time", "attempts", "reframes")
OTHER_ESCALATIONS = (
    "protocol_violation",
    "tool_exhausted",
    "in_doubt",
    "configuration",
    "stuck_loop",
    "done_refused",
    "invalid_decision",
    "model",
    "overloaded",
)
MUST_BE_SEEN = {
    "agent.completed: completed",
    "agent.cancelled: cancelled",
    "agent.failed: overloaded",
    *(f"agent.escalated: {ending_class}" for ending_class in OTHER_ESCALATIONS),
    *(f"agent.escalated: budget_{budget}" for budget in BUDGETS),
    *(f"paused: {ending_class}" for ending_class in ("overloaded", *(f"budget_{budget}" for budget in BUDGETS))),
    *(
        f"cancel: {where}"
        for where in ("queued, start", "running, model", "running, tool", "running, retry", "paused, model")
    ),
    *(f"cancel: {status}, ignored" for status in FINAL),
    *(
        f"result: {how}"
        for how in ("ok", "error", "continuation", "running", "running, ignored", "paused", "paused, ignored")
    ),
    *(
        f"result: {status}"
        for status in ("queued", "escalated", "failed", "cancelled", *(f"{s}, ignored" for s in FINAL))
    ),
    *(f"reply: {how}" for how in ("running", "running, ignored", "paused, ignored", "queued, ignored")),
    *(f"signal: {how}" for how in (*LIVE, "running, ignored", "done, ignored")),
    *(f"timer: {how}" for how in ("queued", "running", "running, ignored", "paused, ignored", "done, ignored")),
    *(
        "result: waits for retry",
        "result: waits for retry, older attempt",
        "result: waits for tool, older attempt",
        "reply: cost None, limited",
    ),
    *(f"call lost: {status}" for status in ("running", "paused", "cancelled", "escalated")),
    *(f"shrink: {status}" for status in ("running", "failed")),
    *(f"reserve: {how}" for how in ("running", "running, ignored", "paused, ignored", "done, ignored")),
    *(f"reserve: cost {cost}, budget_cost" for cost in ("0.02", "None")),
    "reserve: cost None, budget_tokens",
    *(f"{phase}: Unusable" for phase in ("frame", "plan", "reflect", "compact")),
    *(f"{phase}: Refusal" for phase in ("frame", "reflect", "compact")),
    *(f"{phase}: Digest" for phase in ("frame", "plan", "reflect", "compact")),
    *(f"frame with a plan: {how}" for how in ("Plan, dispatched", "Plan, not dispatched", "Unusable, not dispatched")),
    *("compacted by Digest", "compacted by Unusable", "agent.escalated: model_refused"),
    *("timeout", "attempt 2", "attempt 3", "step 6", "wake: running, ignored"),
}


def test_the_stories_see_everything_of_interest(stories: list[Script]) -> None:
    seen = {sight for script in stories for sight in sights(script.story)}
    assert MUST_BE_SEEN - seen == set()
