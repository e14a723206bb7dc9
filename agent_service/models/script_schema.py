"""The JSON Schema of scripts, for editors and for `agentic script check`.

It is stricter than a run: a key of an answer that means nothing is a flaw here, where a run passes it over.
"""

from itertools import combinations
from typing import Any

from agent_service.models.scripted_model import ANSWERS, DECISIONS, NEXT, Script

DIALECT = "https://json-schema.org/draft/2020-12/schema"
REFERENCE = "#/$defs/{model}"

Schema = dict[str, Any]


def schema() -> Schema:
    """Of a whole script."""
    whole = Script.model_json_schema(ref_template=REFERENCE)
    shapes = whole["$defs"]
    rule = shapes["Rule"]
    for name, shape in DECISIONS.items():
        decision = shape.json_schema(ref_template=REFERENCE)
        shapes |= decision.pop("$defs", {})
        shapes[decision["title"]] = decision
        rule["properties"][name] = {"$ref": REFERENCE.format(model=decision["title"])}
    rule["oneOf"] = [_alone(answer) for answer in ANSWERS]
    closed = _closed(whole)
    return {"$schema": DIALECT, **closed, "title": "A script that stands in the place of a model"}


def _alone(answer: str) -> Schema:
    """That answer and no other, but for what may come along with it."""
    along = NEXT if answer in ("frame", "reflect") else ()
    others = [[other] for other in ANSWERS if other != answer and other not in along]
    several = map(list, combinations(along, 2))
    return {"required": [answer], "not": {"anyOf": [{"required": names} for names in (*others, *several)]}}


def _closed(node: Any) -> Any:
    """Without further keys in any object whose keys are known, and without titles, which only repeat names."""
    if isinstance(node, list):
        return [_closed(inner) for inner in node]
    if not isinstance(node, dict):
        return node
    found = {key: _closed(inner) for key, inner in node.items() if key != "title" or not isinstance(inner, str)}
    return found | ({"additionalProperties": False} if "properties" in found else {})
