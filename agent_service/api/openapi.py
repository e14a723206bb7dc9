"""The OpenAPI document of the HTTP API: what FastAPI makes of the calls, and what it does not know of them."""

from typing import Any

from fastapi import FastAPI

from agent_service.api.problems import Problem

Json = dict[str, Any]

AT = "#/components/schemas/{model}"


def document(app: FastAPI) -> Json:
    """The whole document, made once."""
    if app.openapi_schema is None:
        made = app.openapi()
        schemas = made["components"]["schemas"]
        schemas |= _schemas(Problem.model_json_schema(mode="serialization", ref_template=AT))
    return app.openapi()


def _schemas(schema: Json) -> Json:
    """A model's schema and those that it is made of, by their names."""
    parts: Json = schema.pop("$defs", {})
    return parts | {schema["title"]: schema}
