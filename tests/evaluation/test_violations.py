"""A rule of the program that was broken is found: each case is a run that went well, with one thing changed."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_service.core.state import RunState
from agent_service.workbench.evaluation.observed import Observed, Said
from agent_service.workbench.evaluation.playing import judged
from agent_service.workbench.evaluation.violations import RULES, broken_rules
from schemas import subjects
from tests.evaluation.small import seen_of, small

Change = Callable[[Observed], Observed]


@pytest.fixture
async def seen(tmp_path: Path) -> Observed:
    return await seen_of(small(constraints={"max_tokens": 1000, "max_cost_usd": 1.0}), tmp_path)


def reworded(one: Said, payload: dict[str, Any]) -> Said:
    body = json.loads(one.body)
    return replace(one, body=json.dumps({**body, "payload": {**body["payload"], **payload}}).encode())


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


def state(**changes: Callable[[RunState], Any]) -> Change:
    """The run ended in a state with these changes."""

    def change(seen: Observed) -> Observed:
        *before, last = seen.changes
        ended = replace(last.after, **{name: made(last.after) for name, made in changes.items()})
        changed = replace(seen, state=ended)
        changed.__dict__["changes"] = (*before, replace(last, after=ended))
        return changed

    return change


def asked_first(seen: Observed) -> Observed:
    """The operator wanted to be asked each time."""
    (lamp,) = seen.offers
    commands = tuple(command.model_copy(update={"approve": "always"}) for command in lamp.commands)
    return replace(seen, offers=(lamp.model_copy(update={"commands": commands}),))


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
    ],
    "arguments_fit_their_schema": [said(REQUEST, tool_payload={"state": "dim"}), said(REQUEST, tool_payload={})],
    "a_write_is_sent_once": [again(REQUEST, attempt=2)],
    "done_is_proved": [
        said(subjects.COMPLETED, definition_of_done=[ITEM, ITEM, {**ITEM, "done": False}]),
        said(subjects.COMPLETED, definition_of_done=[ITEM, ITEM, {**ITEM, "evidence": []}]),
        said(subjects.COMPLETED, definition_of_done=[ITEM, ITEM, {**ITEM, "evidence": ["step:2"]}]),
    ],
    "nothing_follows_the_end": [
        again(REQUEST, step=2),
        again(subjects.COMPLETED),
        again(subjects.PROGRESS),
        lambda seen: replace(seen, said=[one for one in seen.said if one.subject != subjects.COMPLETED]),
    ],
    "what_needs_approval_is_allowed_first": [asked_first],
    "the_goal_stays": [
        said(subjects.COMPLETED, goal="Switch the lamp off."),
        lambda seen: replace(seen, goal="Switch the lamp off."),
        state(done_items=lambda it: (replace(it.done_items[0], text="easier"), *it.done_items[1:])),
    ],
}


def test_every_rule_has_a_case_and_every_broken_rule_is_found(seen: Observed) -> None:
    assert CASES.keys() == RULES.keys()
    assert broken_rules(seen) == []
    for rule, changes in CASES.items():
        for number, change in enumerate(changes):
            told = broken_rules(change(seen))
            assert any(line.startswith(rule.replace("_", " ")) for line in told), (rule, number)


def test_a_secret_that_is_said_counts_as_a_broken_rule(seen: Observed) -> None:
    expected = small(expect={"status": ["done"], "never_say": ["secret-1"]}).expect
    assert judged(small(), "small", expected=[expected], seen=seen).violations == ()
    for change in (said(REQUEST, tool_payload={"state": "secret-1"}), said(subjects.PROGRESS, summary="secret-1")):
        told = judged(small(), "small", expected=[expected], seen=change(seen)).violations
        assert any("'secret-1' is in agent" in line for line in told)
