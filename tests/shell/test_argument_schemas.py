"""Arguments against the tool's own schema."""

from datetime import UTC, datetime

import pytest
from pydantic import JsonValue

from agent_service.bus.skills import ArgumentSchemas
from agent_service.core.brief import Brief, Limits
from agent_service.core.phases import Action, Plan
from schemas.catalog import ToolCommand, ToolOffer

NUMBER: dict[str, JsonValue] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def flaws(schema: dict[str, JsonValue], arguments: dict[str, JsonValue], tool: str = "count") -> tuple[str, ...]:
    command = ToolCommand(name="handle", tier="read", input_schema=schema)
    skills = (ToolOffer(name="count", route="count", commands=(command,)),)
    brief = Brief(goal="g", context={}, limits=Limits(deadline_at=datetime.now(UTC)), skills=skills)
    return ArgumentSchemas().flaws(brief, Plan(action=Action(tool=tool, command="handle", arguments=arguments)))


def test_valid_arguments_have_no_flaw() -> None:
    assert flaws(NUMBER, {"n": 1}) == ()


def test_a_flaw_names_its_place_and_what_is_wrong() -> None:
    assert flaws(NUMBER, {}) == ('arguments: "n" is a required property',)
    assert flaws(NUMBER, {"n": "x"}) == ('n: "x" is not of type "integer"',)


@pytest.mark.parametrize("schema", [{"type": 7}, {"$ref": "http://127.0.0.1:1/x.json"}])
def test_a_schema_that_cannot_be_used_is_a_flaw_and_fetches_nothing(schema: dict[str, JsonValue]) -> None:
    (flaw,) = flaws(schema, {"n": 1})
    assert "the schema of count cannot be used" in flaw


TWICE: dict[str, JsonValue] = {
    f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(40)
}
CHOICES: list[JsonValue] = [{"required": [f"x{n}"]} for n in range(20_000)]
TREE: dict[str, JsonValue] = {
    "$defs": {"node": {"properties": {"n": {"type": "integer"}, "below": {"items": {"$ref": "#/$defs/node"}}}}},
    "$ref": "#/$defs/node",
}


@pytest.mark.parametrize("schema", [{"$defs": TWICE | {"d40": {}}, "$ref": "#/$defs/d0"}, {"anyOf": CHOICES}])
def test_a_schema_that_would_keep_a_check_busy_is_a_flaw(schema: dict[str, JsonValue]) -> None:
    (flaw,) = flaws(schema, {"n": 1})
    assert "it has more than 5000 parts" in flaw


def test_a_schema_that_names_itself_is_one() -> None:
    assert flaws(TREE, {"below": [{"n": 1}]}) == ()
    assert flaws(TREE, {"below": [{"n": "x"}]}) == ('below/0/n: "x" is not of type "integer"',)
