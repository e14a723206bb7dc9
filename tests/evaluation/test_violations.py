"""A rule of the program that was broken is found: each case is a run that went well, with one thing changed."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_service.workbench.evaluation.scoring import RULES, Observed, Said, flaws, unmet
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


def asked_first(seen: Observed) -> Observed:
    """The operator wanted to be asked each time."""
    (lamp,) = seen.offers
    commands = tuple(command.model_copy(update={"approve": "always"}) for command in lamp.commands)
    return replace(seen, offers=(lamp.model_copy(update={"commands": commands}),))


REQUEST = subjects.tool_request("lamp")
ITEM = {"id": "d1", "text": "a", "done": True, "evidence": ["step:1"]}

CASES: dict[str, list[Change]] = {
    "the journal is whole": [
        lambda seen: replace(seen, entries=[*seen.entries[:3], *seen.entries[4:]]),
        lambda seen: replace(seen, state=replace(seen.state, summary="another") if seen.state else None),
    ],
    "only offered tools are called": [
        said(REQUEST, tool="lump"),
        said(REQUEST, tool_command="smash"),
    ],
    "done is proved": [
        said(subjects.COMPLETED, definition_of_done=[ITEM, ITEM, {**ITEM, "done": False}]),
        said(subjects.COMPLETED, definition_of_done=[ITEM, ITEM, {**ITEM, "evidence": []}]),
        said(subjects.COMPLETED, definition_of_done=[ITEM, ITEM, {**ITEM, "evidence": ["step:2"]}]),
    ],
    "what needs approval is allowed first": [asked_first],
}


def test_every_rule_has_a_case_and_every_broken_rule_is_found(seen: Observed) -> None:
    assert len(CASES) == len(RULES)
    assert flaws((), seen) == ()
    for rule, changes in CASES.items():
        for number, change in enumerate(changes):
            told = flaws((), change(seen))
            assert any(line.startswith(f"rule broken: {rule}: ") for line in told), (rule, number)


def test_a_secret_that_is_said_is_found(seen: Observed) -> None:
    expected = small(expect={"status": ["done"], "never_say": ["secret-1"]}).expect
    assert unmet(expected, seen) == []
    for change in (said(REQUEST, tool_payload={"state": "secret-1"}), said(subjects.PROGRESS, summary="secret-1")):
        assert any("'secret-1' is in agent" in line for line in unmet(expected, change(seen)))
