"""Schemas of replies: providers accept them and read them as we do."""

import json

import jsonschema_rs
import pytest
from pydantic import BaseModel

from agent_service.core.phases import Phase
from agent_service.models.prompts.prompt import compose
from agent_service.models.prompts.replies import DecisionReply, VerificationReply, reply_to, schema_of
from tests.models import schema_rules
from tests.models.model_house import (
    PLAN,
    REFLECTION,
    action,
    framing,
    question,
    reflecting,
    reply,
    separate,
    without_nothing,
)

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
    for tool, known in (("tool-00", count > 0), ("nobody", False)):
        said = without_nothing({"plan": {**PLAN, "actions": [action(tool, "run", {})]}})
        assert validator.is_valid(said) == (known or count == 0)


def test_all_phases_of_a_run_but_the_verification_have_one_schema() -> None:
    state = reflecting(3).state
    phases = (Phase.FRAME, Phase.PLAN, Phase.REFLECT, Phase.COMPACT)
    asked = [framing(), separate(reflecting()), *(question(state, phase) for phase in phases)]
    assert len({compose(each).schema_hash for each in asked}) == 1
    assert reply_to(Phase.VERIFY) is VerificationReply
