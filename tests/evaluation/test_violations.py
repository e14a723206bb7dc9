"""A rule of the program that was broken is found: each case is a run that went well, with one thing changed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_service.core.events import ModelReplied
from agent_service.core.state import RunState
from agent_service.workbench.evaluation.observed import Moment, Observed
from agent_service.workbench.evaluation.playing import judged
from agent_service.workbench.evaluation.violations import RULES, broken_rules
from schemas import subjects
from schemas.catalog import ToolOffer
from tests.evaluation.small import Change, reworded, seen_of, small, unfound


@pytest.fixture
async def seen(tmp_path: Path) -> Observed:
    return await seen_of(small(constraints={"max_tokens": 1000, "max_cost_usd": 1.0}), tmp_path)


def said(subject: str, **payload: Any) -> Change:
    """Every message on `subject` says this instead."""

    def change(seen: Observed) -> Observed:
        return replace(seen, said=[reworded(one, payload) if one.subject == subject else one for one in seen.said])

    return change


def again(subject: str, **payload: Any) -> Change:
    """A message on `subject` is said once more, at the end."""

    def change(seen: Observed) -> Observed:
        first = next(one for one in seen.said if one.subject == subject)
        return replace(seen, said=[*seen.said, reworded(first, payload)])

    return change


def state(which: Callable[[Moment], bool], **changes: Any) -> Change:
    """The moments that are meant led to a state with these changes."""

    def change(seen: Observed) -> Observed:
        moments = tuple(replace(m, state=_with(m.state, changes)) if which(m) else m for m in seen.moments)
        changed = replace(seen, state=moments[-1].state)
        changed.__dict__["moments"] = moments
        return changed

    return change


def _with(state: RunState, changes: dict[str, Any]) -> RunState:
    return replace(state, **{name: make(state) for name, make in changes.items()})


def replied(moment: Moment) -> bool:
    return isinstance(moment.event, ModelReplied)


def last(moment: Moment) -> bool:
    return moment.state.final


def asked_first(offer: ToolOffer) -> ToolOffer:
    """The same tool, had the operator wanted to be asked each time."""
    commands = tuple(command.model_copy(update={"approve": "always"}) for command in offer.commands)
    return offer.model_copy(update={"commands": commands})


REQUEST = subjects.tool_request("lamp")
ITEM = {"id": "d1", "text": "a", "done": True, "evidence": ["step:1"]}

CASES: dict[str, list[Change]] = {
    "the_journal_is_whole": [
        lambda seen: replace(seen, entries=[*seen.entries[:3], *seen.entries[4:]]),
        lambda seen: replace(seen, state=replace(seen.state, summary="another") if seen.state else None),
    ],
    "only_offered_tools_are_called": [
        said(REQUEST, tool="lump"),
        said(REQUEST, tool_command="smash"),
        lambda seen: replace(seen, offers=()),
    ],
    "arguments_fit_their_schema": [said(REQUEST, tool_payload={"state": "dim"}), said(REQUEST, tool_payload={})],
    "a_write_is_sent_once": [again(REQUEST, attempt=2)],
    "done_is_proved": [
        said(subjects.COMPLETED, definition_of_done=[ITEM, ITEM, {**ITEM, "done": False}]),
        said(subjects.COMPLETED, definition_of_done=[ITEM, ITEM, {**ITEM, "evidence": []}]),
        said(subjects.COMPLETED, definition_of_done=[ITEM, ITEM, {**ITEM, "evidence": ["step:2"]}]),
        said(subjects.COMPLETED, definition_of_done=[ITEM]),
    ],
    "nothing_follows_the_end": [
        again(REQUEST, step=2),
        again(subjects.COMPLETED),
        again(subjects.PROGRESS),
        lambda seen: replace(seen, said=[one for one in seen.said if one.subject != subjects.COMPLETED]),
    ],
    "what_needs_approval_is_allowed_first": [
        lambda seen: replace(seen, offers=tuple(asked_first(offer) for offer in seen.offers)),
    ],
    "the_goal_stays": [
        said(subjects.COMPLETED, goal="Switch the lamp off."),
        lambda seen: replace(seen, goal="Switch the lamp off."),
        state(last, done_items=lambda it: (replace(it.done_items[0], text="easier"), *it.done_items[1:])),
    ],
    "budgets_hold": [
        state(last, step=lambda it: it.brief.limits.max_steps + 1),
        state(last, reframes=lambda it: it.brief.limits.max_reframes + 1),
        state(last, brief=lambda it: replace(it.brief, limits=replace(it.brief.limits, deadline_at=it.accepted_at))),
    ],
    "what_is_spent_is_counted": [
        state(last, spent=lambda it: replace(it.spent, calls=it.spent.calls + 1)),
        state(last, spent=lambda it: replace(it.spent, input_tokens=1)),
        state(last, spent=lambda it: replace(it.spent, cost_usd=0.5)),
        state(last, spent=lambda it: replace(it.spent, cost_usd=None)),
    ],
}


def test_every_rule_has_a_case_and_every_broken_rule_is_found(seen: Observed) -> None:
    assert CASES.keys() == RULES.keys()
    assert broken_rules(seen) == []
    assert unfound(CASES, seen) == []


@pytest.mark.parametrize(
    "change", [said(REQUEST, tool_payload={"state": "secret-1"}), said(subjects.PROGRESS, summary="secret-1")]
)
def test_a_secret_that_is_said_counts_as_a_broken_rule(seen: Observed, change: Change) -> None:
    expected = small(expect={"status": ["done"], "never_say": ["secret-1"]}).expect
    assert judged(small(), "small", expected=[expected], seen=seen).violations == ()
    told = judged(small(), "small", expected=[expected], seen=change(seen)).violations
    assert any("'secret-1' is in agent" in line for line in told)
