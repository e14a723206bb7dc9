"""The schemas of replies: that providers take them, and that they mean to a provider what they mean to us."""

import json
from typing import Any

import jsonschema_rs
import pytest
from anthropic import transform_schema

from agent_service.core.phases import Phase
from agent_service.models.prompts.replies import Form, form_of, schema_hash, schema_of
from tests.models import schema_rules
from tests.models.model_house import DIGEST, FRAMING, OPENING, PLAN, REFLECTION, TURN

TOOLS = {count: tuple(f"tool-{number:02}" for number in range(count)) for count in (0, 1, 60)}
REPLIES: dict[Form, dict[str, Any]] = {
    Form.OPENING: OPENING,
    Form.FRAMING: FRAMING,
    Form.TURN: TURN,
    Form.PLAN: PLAN,
    Form.REFLECTION: REFLECTION,
    Form.DIGEST: DIGEST,
}
each_form = pytest.mark.parametrize("form", Form)
each_count = pytest.mark.parametrize("count", TOOLS)


@each_form
@each_count
def test_a_provider_takes_every_schema(form: Form, count: int) -> None:
    schema_rules.check(schema_of(form, TOOLS[count]))


@each_form
@each_count
def test_the_sdk_would_change_nothing_about_a_schema(form: Form, count: int) -> None:
    schema = schema_of(form, TOOLS[count])
    assert transform_schema(schema) == without_types_of_enums(schema)


@each_form
def test_no_property_is_optional(form: Form) -> None:
    text = json.dumps(schema_of(form, TOOLS[1]))
    schema = json.loads(text, object_hook=lambda node: node if "properties" not in node else required(node))
    assert schema == json.loads(text)


@each_form
@each_count
def test_a_good_reply_fits_its_schema_with_the_tools_of_the_run_alone(form: Form, count: int) -> None:
    validator = jsonschema_rs.validator_for(schema_of(form, TOOLS[count]))
    known, unknown = ({"tool": name} for name in (TOOLS[60][0], "nobody's"))
    assert validator.is_valid(planned(form, known))
    plans = form in (Form.PLAN, Form.OPENING, Form.TURN)
    assert validator.is_valid(planned(form, unknown)) == (not plans or count == 0)


@each_form
def test_the_order_of_the_tools_changes_nothing(form: Form) -> None:
    there, back = TOOLS[60], TOOLS[60][::-1]
    assert json.dumps(schema_of(form, there)) == json.dumps(schema_of(form, back))
    assert schema_hash(form, there) == schema_hash(form, back)


def test_a_fused_run_has_one_schema_for_all_turns() -> None:
    assert form_of(Phase.PLAN, with_plan=True) is form_of(Phase.REFLECT, with_plan=True) is Form.TURN


def test_every_schema_has_a_hash_of_its_own() -> None:
    assert len({schema_hash(form, TOOLS[count]) for form in Form for count in (1, 60)}) == 3 * 2 + 3


def planned(form: Form, change: dict[str, Any]) -> dict[str, Any]:
    """The good reply of `form`, with `change` in its plan."""
    plan = {**PLAN, **change}
    if form is Form.PLAN:
        return plan
    return {**REPLIES[form], "plan": plan} if form in (Form.OPENING, Form.TURN) else REPLIES[form]


def required(node: dict[str, Any]) -> dict[str, Any]:
    return {**node, "required": list(node["properties"])}


def without_types_of_enums(node: Any) -> Any:
    """The same schema: an enum says the type by its values."""
    if isinstance(node, list):
        return [without_types_of_enums(item) for item in node]
    if not isinstance(node, dict):
        return node
    left = {name for name in node if name != "type" or "enum" not in node}
    return {name: without_types_of_enums(value) for name, value in node.items() if name in left}
