"""Arguments against the schemas of tools: those of plans, and those of tasks."""

from typing import Any

import pytest

from agent_service.core.phases import Plan
from agent_service.run.model_calls import flaws_of_arguments
from tests.core.cues import FETCH, POST, frames, plan, queued, started
from tests.core.script import Script

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TWICE = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(40)}
TREE = {
    "$defs": {"node": {"properties": {"n": {"type": "integer"}, "below": {"items": {"$ref": "#/$defs/node"}}}}},
    "$ref": "#/$defs/node",
}
UNUSABLE, BUSY = "the schema of post cannot be used", "it has more than 5000 parts"
TO: dict[str, Any] = {"type": "object", "required": ["to"], "properties": {"to": {"type": "string"}}}
STRICT = TO | {"additionalProperties": False}


def a_run(schema: Any) -> Script:
    """`post` has the schema."""
    command = POST.commands[0].model_copy(update={"input_schema": schema})
    skills = (FETCH, POST.model_copy(update={"commands": (command,)}))
    return queued() >> started(skills) >> frames()


def written(**arguments: Any) -> Plan:
    return plan("post", POST.commands[0].name, **arguments)


@pytest.mark.parametrize(
    ("schema", "arguments", "flaw"),
    [
        (NUMBER, {"n": 1}, ""),
        (NUMBER, {"x": 1}, 'arguments: "n" is a required property'),
        (NUMBER, {"n": "x"}, 'n: "x" is not of type "integer"'),
        (TREE, {"below": [{"n": 1}]}, ""),
        (TREE, {"below": [{"n": "x"}]}, 'below/0/n: "x" is not of type "integer"'),
        ({"type": 7}, {"n": 1}, UNUSABLE),
        ({"$ref": "http://127.0.0.1:1/x.json"}, {"n": 1}, UNUSABLE),
        ({"$defs": TWICE | {"d40": {}}, "$ref": "#/$defs/d0"}, {"n": 1}, BUSY),
        (
            {"properties": {"n": {"$id": "urn:n", "$defs": TWICE | {"d40": {}}, "$ref": "#/$defs/d0"}}},
            {"n": 1},
            UNUSABLE,
        ),
        (
            {"$id": "urn:tree", "properties": {"n": {"type": "integer"}, "below": {"$ref": "#"}}},
            {"below": {"n": 1}},
            "",
        ),
        ({"anyOf": [{"required": [f"x{n}"]} for n in range(20_000)]}, {"n": 1}, BUSY),
    ],
)
def test_arguments_that_do_not_fit_and_schemas_that_cannot_be_used_are_flaws(
    schema: Any, arguments: dict[str, Any], flaw: str
) -> None:
    flaws = flaws_of_arguments(a_run(schema).state.brief, written(**arguments).action)
    assert len(flaws) == bool(flaw)
    assert flaw in "".join(flaws)
