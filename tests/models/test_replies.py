"""How replies are read: what is taken, what is cut, and what is said of those that cannot be used."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_service.core.phases import Framing, Phase, Plan, Reflection, Unusable
from agent_service.models.prompts.replies import Form, read
from tests.models.model_house import DIGEST, FRAMING, OPENING, PLAN, REFLECTION, TURN

PHASES = {Form.OPENING: Phase.FRAME, Form.FRAMING: Phase.FRAME, Form.PLAN: Phase.PLAN, Form.DIGEST: Phase.COMPACT}
SHORT = 450
"""Longer than any line that is kept or said."""


def plan(**changes: Any) -> Plan | Unusable:
    """What becomes of a plan with `changes`."""
    decision, beside = read(Form.PLAN, Phase.PLAN, json.dumps({**PLAN, **changes}))
    assert isinstance(decision, Plan | Unusable)
    assert beside is None
    return decision


def reason(form: Form, reply: Any) -> str:
    """What is said of a reply that cannot be used."""
    text = reply if isinstance(reply, str) else json.dumps(reply)
    decision, beside = read(form, PHASES.get(form, Phase.REFLECT), text)
    assert isinstance(decision, Unusable)
    assert beside is None
    assert decision.raw == text[:4000]
    return decision.reason


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("", "the reply: Invalid JSON: EOF while parsing"),
        ("Sure!", "the reply: Invalid JSON"),
        (json.dumps(TURN)[:-2], "the reply: Invalid JSON: EOF"),
        (json.dumps(TURN) + json.dumps(TURN), "trailing characters"),
        ("Here it is:\n" + json.dumps(TURN), "Invalid JSON"),
        (json.dumps(TURN) + "\nDone.", "trailing characters"),
        ("```json\n" + json.dumps(TURN) + "\n```", "Invalid JSON"),
        ("[" * 10_000, "recursion limit"),
        ([TURN], "the reply: Input should be an object"),
        ("null", "the reply: Input should be an object"),
        ({}, "reflection: Field required; plan: Field required"),
        ({**TURN, "thoughts": "x"}, "thoughts: Extra inputs are not permitted"),
        ({**TURN, "reflection": None}, "reflection is null"),
        ({**TURN, "reflection": {**REFLECTION, "verdict": "finish"}}, "reflection.verdict: Input should be 'continue'"),
        ({**TURN, "reflection": {**REFLECTION, "verdict": "DONE"}}, "reflection.verdict: Input should be 'continue'"),
        ({**TURN, "reflection": {**REFLECTION, "facts": "one"}}, "reflection.facts: Input should be a valid array"),
        ({**TURN, "plan": {**PLAN, "tool": None}}, "plan.tool: Input should be a valid string"),
    ],
)
def test_a_turn_that_cannot_be_used_is_told_why(reply: Any, said: str) -> None:
    assert said in reason(Form.TURN, reply)


def test_all_that_is_wrong_is_said_at_once() -> None:
    told = reason(Form.FRAMING, {**FRAMING, "goal_statement": 1, "hypothesis": 2, "more": 3})
    assert [part.split(":")[0] for part in told.split("; ")] == ["goal_statement", "hypothesis", "more"]


def test_what_was_wrong_is_not_repeated_in_the_reason() -> None:
    assert "secret" not in reason(Form.FRAMING, {**FRAMING, "goal_statement": ["secret"]})


@pytest.mark.parametrize(
    ("form", "reply"),
    [
        (Form.FRAMING, {**FRAMING, "x" * 100_000: 1}),
        (Form.FRAMING, {**FRAMING, "assumptions": [1] * 10_000}),
        (Form.FRAMING, {**FRAMING, **{f"{'y' * 500}{n}": n for n in range(50)}}),
        (Form.DIGEST, "x" * 100_000),
    ],
    ids=["a long name", "many errors", "many long names", "no JSON"],
)
def test_a_reason_is_never_long(form: Form, reply: Any) -> None:
    assert len(reason(form, reply)) < 4000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "Expecting value"),
        ("{", "Expecting property name"),
        ("{'a': 1}", "Expecting property name"),
        ("{} {}", "Extra data"),
        ("[]", "no JSON object"),
        ('"text"', "no JSON object"),
        ("null", "no JSON object"),
        ('{"a": NaN}', "NaN is no number"),
        ('{"a": -Infinity}', "-Infinity is no number"),
        ('{"a": 1e999}', "1e999 is no number"),
        ('{"a": 1, "b": 2, "a": 3}', "'a' is there twice"),
        ('{"o": {"a": 1, "a": 1}}', "'a' is there twice"),
        ('{"a": ' + "9" * 5000 + "}", "Exceeds the limit"),
        ('{"a":' * 51 + "1" + "}" * 51, "deeper than 50 levels"),
        ('{"a":' * 100_000, "recursion"),
    ],
)
def test_arguments_that_are_no_object_are_told_why(arguments: str, said: str) -> None:
    decision = plan(arguments_json=arguments)
    assert isinstance(decision, Unusable)
    assert decision.reason.startswith("plan.arguments_json: ")
    assert said in decision.reason
    assert decision.raw == arguments[:4000]
    assert len(decision.reason) < 1000


@pytest.mark.parametrize("arguments", ["{}", ' {"a": [1.5, null, "ü"]}\n', '{"a":' * 50 + "1" + "}" * 50])
def test_any_other_object_is_what_the_tool_gets(arguments: str) -> None:
    decision = plan(arguments_json=arguments)
    assert isinstance(decision, Plan)
    assert decision.action.arguments == json.loads(arguments)


def test_a_plan_that_came_along_and_cannot_be_used_leaves_the_decision_alone() -> None:
    reply = {**OPENING, "plan": {**PLAN, "arguments_json": "?"}}
    decision, beside = read(Form.OPENING, Phase.FRAME, json.dumps(reply))
    assert isinstance(decision, Framing)
    assert isinstance(beside, Unusable)


@pytest.mark.parametrize("verdict", ["done", "reframe", "escalate"])
def test_only_who_goes_on_has_a_next_plan(verdict: str) -> None:
    reply = {**TURN, "reflection": {**REFLECTION, "verdict": verdict}}
    assert read(Form.TURN, Phase.REFLECT, json.dumps(reply))[1] is None


def test_asked_for_a_plan_the_reflection_beside_it_is_left_out() -> None:
    decision, beside = read(Form.TURN, Phase.PLAN, json.dumps(TURN))
    assert isinstance(decision, Plan)
    assert beside is None


def test_asked_for_a_plan_neither_plan_nor_reflection_is_no_reply() -> None:
    decision, _ = read(Form.TURN, Phase.PLAN, json.dumps({"plan": None, "reflection": None}))
    assert isinstance(decision, Unusable)


def test_what_is_only_too_long_is_cut_and_not_refused() -> None:
    long = {"summary": "s" * 9999, "facts": ["f" * 9999] * 50, "outcome": "o" * 9999}
    decision, _ = read(Form.REFLECTION, Phase.REFLECT, json.dumps({**REFLECTION, **long}))
    assert isinstance(decision, Reflection)
    assert len(decision.summary) == 4000
    assert len(decision.facts) == 10
    assert all(len(fact) < SHORT for fact in decision.facts)
    planned = plan(outline=["step " * 200] * 99, rationale="r" * 9999, risk="r" * 9999)
    assert isinstance(planned, Plan)
    assert len(planned.outline) == 20
    assert max(map(len, (*planned.outline, planned.risk))) < SHORT


def test_blank_lines_are_no_facts() -> None:
    decision, _ = read(Form.REFLECTION, Phase.REFLECT, json.dumps({**REFLECTION, "facts": ["", " \n", "so"]}))
    assert isinstance(decision, Reflection)
    assert decision.facts == ("so",)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
GOOD: st.SearchStrategy[dict[str, Any]] = st.sampled_from([TURN, OPENING, FRAMING, PLAN, REFLECTION, DIGEST])


@given(form=st.sampled_from(Form), phase=st.sampled_from(Phase), said=st.data())
@settings(deadline=None)
def test_whatever_is_said_is_read_or_told_why_not(form: Form, phase: Phase, said: st.DataObject) -> None:
    base: dict[str, Any] = said.draw(GOOD)
    names = st.sampled_from([*base, "else"])
    text = json.dumps({**base, **said.draw(st.dictionaries(names, JSON, max_size=2))})
    decision, _ = read(form, phase, said.draw(st.sampled_from([text, text[:-1], text[1:], text * 2])))
    assert not isinstance(decision, Unusable) or decision.reason


@given(arguments=st.dictionaries(st.text(max_size=5), JSON, max_size=3))
@settings(deadline=None)
def test_arguments_come_back_as_they_were_meant(arguments: dict[str, Any]) -> None:
    text = json.dumps(arguments)
    decision = plan(arguments_json=text)
    if "NaN" in text or "Infinity" in text:
        return
    assert isinstance(decision, Plan)
    assert decision.action.arguments == arguments
