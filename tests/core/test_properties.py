"""What holds for any sequence of events."""

from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given

from agent_service.core.announcing import outstanding
from agent_service.core.decide import TABLE, decide
from agent_service.core.effects import Publish
from agent_service.core.events import (
    CallReserved,
    ModelReplied,
    ModelUnavailable,
    SignalReceived,
    StoodStill,
    TimerFired,
    ToolReturned,
    TurnBroke,
)
from agent_service.core.phases import Digest, Phase, Refusal, Unusable
from agent_service.core.waiting import (
    Ended,
    ForAnswer,
    ForApproval,
    ForEvidence,
    ForPerson,
    ForReads,
    ForTime,
    ModelRetry,
    Status,
)
from agent_service.run import journal
from schemas import subjects
from schemas.events import INBOUND, OUTBOUND
from tests.core.rules import RULES, Rule
from tests.core.rules.reading import Story, after, entries
from tests.core.script import Moment, Script
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


STATES = tuple(state for state in TABLE if state)
THE_RAREST: set[tuple[type, type, type]] = {
    *((state, SignalReceived, end) for state in (ForAnswer, ForApproval, ForPerson) for end in (ForPerson, Ended)),
    *((ForApproval, event, end) for event in (TimerFired, ToolReturned) for end in (ForPerson, Ended)),
    *((state, SignalReceived, to) for state in (Ended, ForPerson) for to in (ForApproval, ForReads)),
    *((ForEvidence, event, to) for event in (ToolReturned, TimerFired) for to in (ForReads, ForPerson)),
    (ForTime, SignalReceived, ForTime),
    (ForTime, SignalReceived, Ended),
    (ForTime, TimerFired, Ended),
    (ModelRetry, TimerFired, Ended),
}
"""Moves that take two rare things at once, such as a ruling at the very end of a deadline that somebody named; they are
made one by one in test_states."""


def test_the_stories_end_and_pause_in_every_way(stories: list[Script]) -> None:
    states = [after(moment) for script in stories for moment in script.story]
    assert {(str(state.status), state.ending_class) for state in states} >= ENDINGS


def test_the_stories_make_every_move_of_the_table_but_the_rarest(
    stories: list[Script],
) -> None:
    moves = {(w, event, to) for w, row in TABLE.items() if w for event, rule in row.items() for to in rule.to}
    rare: set[tuple[type, type, type]] = {
        (ModelRetry, event, to) for event in (CallReserved, ModelReplied, ModelUnavailable) for to in STATES
    }
    rare |= {(state, TurnBroke, Ended) for state in STATES} | {(state, StoodStill, state) for state in STATES}
    rare |= THE_RAREST
    assert moves - rare - {move_of(moment) for script in stories for moment in entries(script.story)} == set()


def move_of(moment: Moment) -> tuple[type, type, type]:
    return type(moment.before.waiting) if moment.before else Script, type(moment.event), type(after(moment).waiting)


def test_the_stories_hold_what_is_no_decision_in_every_phase(stories: list[Script]) -> None:
    moments = [moment for script in stories for moment in entries(script.story)]
    seen = {
        (m.before.asking.phase, type(m.event.decision))
        for m in moments
        if m.before and m.before.asking
        if isinstance(m.event, ModelReplied)
    }
    assert seen >= set(product((Phase.FRAME, Phase.PLAN, Phase.REFLECT, Phase.COMPACT), (Unusable, Digest)))
    assert seen >= set(product((Phase.FRAME, Phase.REFLECT, Phase.COMPACT), (Refusal,)))
