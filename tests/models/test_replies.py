"""Replies: accepted, truncated and refused ones, the reasons, and their schemas, which providers accept."""

import json
import time
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from agent_service.core.phases import Framing, Phase, Plan, Reflection, Unusable
from agent_service.models.prompts.prompt import compose
from agent_service.models.prompts.replies import DecisionReply, VerificationReply, reply_to, schema_of
from agent_service.models.prompts.validation import Read, read
from agent_service.run.ports import ModelQuestion
from tests.kit.golden import Golden
from tests.models import schema_rules
from tests.models.model_house import (
    ACTION,
    ASK,
    DIGEST,
    FRAMING,
    OPENING,
    PLAN,
    REFLECTION,
    TURN,
    VERIFICATION,
    WAIT,
    action,
    framing,
    planning,
    question,
    reflecting,
    reply,
    separate,
    without_nothing,
)

ASKED: dict[Phase, ModelQuestion] = {
    Phase.FRAME: framing(),
    Phase.PLAN: planning(),
    Phase.REFLECT: reflecting(),
    Phase.COMPACT: question(reflecting(3).state, Phase.COMPACT),
    Phase.VERIFY: question(reflecting().state, Phase.VERIFY),
}
SHORT = 450
"""Longer than any line that is kept or shown."""


def said_in(phase: Phase, **parts: Any) -> Read:
    return read(ASKED[phase], json.dumps(reply(**parts)))


def plan(**changes: Any) -> Plan | Unusable:
    decision, beside = said_in(Phase.PLAN, plan={**PLAN, "actions": [{**ACTION, **changes}]})
    assert isinstance(decision, Plan | Unusable)
    assert beside is None
    return decision


def reason(phase: Phase, said: Any) -> str:
    text = said if isinstance(said, str) else json.dumps(said)
    decision, beside = read(ASKED[phase], text)
    assert isinstance(decision, Unusable)
    assert beside is None
    assert decision.raw.startswith(text[:3900])
    return decision.reason


TEXT = json.dumps(TURN)
ALL_WRONG = reply(
    reflection={**REFLECTION, "verdict": "finish"},
    plan={**PLAN, "actions": [{**ACTION, "call": "browse.open"}, {**ACTION, "arguments_json": '{"text": 7}'}]},
    thoughts=["hm"],
)
NO_TURNS: dict[str, Any] = {
    "nothing": "",
    "broken off": TEXT[:-2],
    "words after": TEXT + "\nDone.",
    "two commas": TEXT.replace(", ", ",, ", 1),
    "a part twice": TEXT[:-1] + ', "plan": null}',
    "a list": [TURN],
    "empty": {},
    "an unknown part": {**TURN, "thoughts": {"x": 1}},
    "no reflection": {**TURN, "reflection": None},
    "an unknown verdict": {**TURN, "reflection": {**REFLECTION, "verdict": "finish"}},
    "facts in words": {**TURN, "reflection": {**REFLECTION, "facts": "one"}},
    "a question that escalates": {**TURN, "reflection": {**REFLECTION, "verdict": "escalate"}, "ask": ASK},
    "all of it, which one repair can mend": ALL_WRONG,
}
NO_PLANS: dict[str, dict[str, Any]] = {
    "no rationale": {"plan": {**PLAN, "rationale": None}},
    "no action": {"plan": {**PLAN, "actions": []}},
    "two actions": {"plan": {**PLAN, "actions": [ACTION, {**ACTION, "arguments_json": '{"text": 1}'}]}},
    "an unknown call": {"plan": {**PLAN, "actions": [{**ACTION, "call": "browse.open"}]}},
    "a plan and a question": {"plan": PLAN, "ask": ASK},
    "a blank question": {"ask": {**ASK, "question": " "}},
    "thirty choices": {"ask": {**ASK, "choices": ["so"] * 30}},
    "two ends of a wait": {"wait": {**WAIT, "until": "2026-11-22T12:00:00Z"}},
    "a wait into the past": {"wait": {**WAIT, "seconds": -1}},
    "a wait until noon": {"wait": {**WAIT, "seconds": None, "until": "noon"}},
    "a reflection": {"reflection": REFLECTION},
    "nothing": {},
}
NO_ARGUMENTS: dict[str, str] = {
    "an open brace": "{",
    "a list": "[]",
    "a name twice": '{"a": 1, "b": 2, "a": 3}',
    "5000 digits": '{"a": ' + "9" * 5000 + "}",
    "33 levels": '{"a":' * 33 + "1" + "}" * 33,
    "half a sign": '{"a": "\\ud800"}',
    "another type": '{"text": 7}',
}


def test_a_reply_that_cannot_be_used_is_told_why(golden: Golden) -> None:
    told = {f"a turn: {name}": reason(Phase.REFLECT, said) for name, said in NO_TURNS.items()}
    told |= {f"a plan: {name}": reason(Phase.PLAN, reply(**said)) for name, said in NO_PLANS.items()}
    for name, arguments in NO_ARGUMENTS.items():
        decision = plan(arguments_json=arguments)
        assert isinstance(decision, Unusable)
        assert len(decision.reason) < 1000
        told[f"arguments: {name}"] = decision.reason
    golden("replies", "".join(f"{name}\n    {why}\n" for name, why in told.items()))


def test_a_fence_thoughts_and_other_spellings_of_a_name_are_looked_through() -> None:
    for text in (
        f"```json\n{TEXT}\n```",
        f"<think>so {{</think>\n{TEXT}",
        f"So {{.\n</think>\n{TEXT}",
        f"\n```\n{TEXT}\n```\n",
        TEXT.replace('"d1"', '"D1: it is found"').replace('"continue"', '" Continue"'),
    ):
        assert read(ASKED[Phase.REFLECT], text) == read(ASKED[Phase.REFLECT], TEXT), text


def test_no_reply_takes_long_to_read_or_to_be_told_of_or_the_process_along() -> None:
    for said in (
        "{" * 31_000,
        "x" * 100_000,
        reply(framing={**FRAMING, "x" * 100_000: 1}),
        reply(framing={**FRAMING, "assumptions": [1] * 10_000}),
        reply(framing={**FRAMING, **{f"{'y' * 500}{n}": n for n in range(50)}}),
        {"z" * 100_000: 1, **{f"{n}": n for n in range(50)}},
    ):
        before = time.process_time()
        assert len(reason(Phase.FRAME, said)) < 7000
        assert time.process_time() - before < 0.5


def test_thoughts_beside_the_parts_are_left_alone() -> None:
    for phase, said in ((Phase.REFLECT, TURN), (Phase.VERIFY, VERIFICATION)):
        assert read(ASKED[phase], json.dumps({"thoughts": "hm", **said})) == read(ASKED[phase], json.dumps(said))


def test_a_call_in_another_spelling_is_that_call_arguments_may_be_an_object_and_no_verdict_is_to_go_on() -> None:
    for call in ("Search.Query", "search query", "search/query()", "search: query", "search"):
        assert plan(call=call) == plan()
    assert plan(arguments_json={"text": "the answer"}) == plan()
    nested = plan(arguments_json={"text": {"deep": 1}})
    assert isinstance(nested, Unusable)
    assert "arguments_json" in nested.reason
    decision, _ = said_in(Phase.REFLECT, reflection={**REFLECTION, "verdict": None})
    assert decision == said_in(Phase.REFLECT, reflection=REFLECTION)[0]


def test_a_long_text_takes_its_place_among_the_arguments() -> None:
    decision = plan(arguments_json="{}", long_text={"argument": "text", "text": 'the "answer"\nin full'})
    assert isinstance(decision, Plan)
    assert decision.action.arguments == {"text": 'the "answer"\nin full'}
    assert plan(arguments_json='{"text": "two\nlines"}') == plan(arguments_json='{"text": "two\\nlines"}')
    twice = plan(long_text={"argument": "text", "text": "another"})
    assert isinstance(twice, Unusable)
    assert "'text' is in long_text, too" in twice.reason


def test_a_plan_that_came_along_and_cannot_be_used_leaves_the_decision_alone() -> None:
    broken = {**PLAN, "actions": [{**ACTION, "arguments_json": "?"}]}
    decision, beside = said_in(Phase.FRAME, framing=FRAMING, plan=broken)
    assert isinstance(decision, Framing)
    assert isinstance(beside, Unusable)


def test_what_is_only_too_long_is_cut_and_not_refused() -> None:
    long = {"summary": "s" * 9999, "facts": ["f" * 9999] * 50, "outcome": "o" * 9999}
    decision, _ = said_in(Phase.REFLECT, reflection={**REFLECTION, **long})
    assert isinstance(decision, Reflection)
    assert len(decision.summary) == 4000
    assert len(decision.facts) == 10
    assert all(len(fact) < SHORT for fact in decision.facts)
    longer = {"outline": ["step " * 200] * 99, "rationale": "r" * 9999, "risk": "r" * 9999}
    planned, _ = said_in(Phase.PLAN, plan={**PLAN, **longer})
    assert isinstance(planned, Plan)
    assert len(planned.outline) == 20
    assert max(map(len, (*planned.outline, planned.risk))) < SHORT


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
GOOD = (TURN, OPENING, DIGEST, VERIFICATION, reply(ask=ASK), reply(wait=WAIT))


@given(phase=st.sampled_from(list(ASKED)), said=st.data())
@settings(deadline=None)
def test_whatever_is_said_is_read_or_told_why_not(phase: Phase, said: st.DataObject) -> None:
    base: dict[str, Any] = said.draw(st.sampled_from(GOOD))
    names = st.sampled_from([*base, "else"])
    text = json.dumps({**base, **said.draw(st.dictionaries(names, JSON, max_size=2))})
    decision, _ = read(ASKED[phase], said.draw(st.sampled_from([text, text[:-1], text[1:], text * 2])))
    assert not isinstance(decision, Unusable) or decision.reason


# Their schemas


CALLS = {count: tuple(f"tool-{number:02}.run" for number in range(count)) for count in (0, 1, 60)}
each_count = pytest.mark.parametrize("count", CALLS)


@pytest.mark.parametrize("replied", [DecisionReply, VerificationReply])
@each_count
def test_a_provider_takes_every_schema(replied: type[BaseModel], count: int) -> None:
    schema_rules.check(schema_of(replied, CALLS[count]))


def test_what_is_null_or_empty_may_be_left_out() -> None:
    validator = jsonschema_rs.validator_for(schema_of(DecisionReply, ("search.query",)))
    said = without_nothing(
        reply(reflection={**REFLECTION, "met": [], "facts": []}, plan={**PLAN, "outline": None, "risk": None})
    )
    assert "null" not in json.dumps(schema_of(DecisionReply, ())), "a union is dear: what is null is left out"
    assert said.keys() == {"reflection", "plan"}
    assert said["reflection"].keys() == {"summary", "verdict"}
    assert said["plan"].keys() == {"rationale", "actions", "expected_outcome"}
    assert validator.is_valid(said)
    assert not validator.is_valid({"plan": {**PLAN, "rationale": None}})


def test_a_verdict_is_written_after_what_it_follows_from() -> None:
    """Claude writes required properties before the others, each kind in the order of the schema."""
    reflection = schema_of(DecisionReply, CALLS[1])["properties"]["reflection"]
    others = [name for name in reflection["properties"] if name not in reflection["required"]]
    assert [*reflection["required"], *others] == ["summary", "met", "unmet", "facts", "verdict", "outcome"]


@each_count
def test_only_calls_of_the_run_can_be_planned(count: int) -> None:
    validator = jsonschema_rs.validator_for(schema_of(DecisionReply, CALLS[count]))
    for tool, known in (("tool-00", count > 0), ("no-such-tool", False)):
        said = without_nothing({"plan": {**PLAN, "actions": [action(tool, "run", {})]}})
        assert validator.is_valid(said) == (known or count == 0)


def test_all_phases_of_a_run_but_the_verification_have_one_schema() -> None:
    state = reflecting(3).state
    phases = (Phase.FRAME, Phase.PLAN, Phase.REFLECT, Phase.COMPACT)
    asked = [framing(), separate(reflecting()), *(question(state, phase) for phase in phases)]
    assert len({compose(each).schema_hash for each in asked}) == 1
    assert reply_to(Phase.VERIFY) is VerificationReply
