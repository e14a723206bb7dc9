"""The OpenAPI document of the HTTP API: what FastAPI makes of the calls, and what it does not know of them.

What a call does is told by the docstring of its endpoint, whose first sentence is the summary. `examples.json` has, by
the name of a call, what may be sent to it and what it may answer. Answers may have further fields in later versions, so
their schemas do not rule any out; bodies are strict.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from agent_service.api import errors, requests
from agent_service.api.problems import Problem

Json = dict[str, Any]
Tag = Literal["runs", "people", "insight", "dead letters", "operation", "service"]

TITLE = "Agentic Loop"
ABOUT = """Durable, goal-directed runs: wake one, watch it, speak to it, cancel it. Accepted is not completed.

Send `Authorization: Bearer <token>`, with a token that has the scope of the call; an agent without tokens answers
everybody on its own machine. What is refused is a problem (RFC 9457). docs/API.md tells how the calls work together."""
VERSION = "1"
LICENSE = {"name": "Apache License 2.0", "identifier": "Apache-2.0"}
TAGS: Mapping[Tag, str] = {
    "runs": "Wake runs, see where they stand, follow them, and take what they made.",
    "people": "What waits for a person, and what a person says to a run.",
    "insight": "Look into one run: what it did when, why it stands where it stands, what the model was told.",
    "dead letters": "Messages that could not be handled: read them, send them again, take them away.",
    "operation": "How the agent is, which tools there are; stop everything, drain it, have old runs go.",
    "service": "Who is asking, whether the agent lives and can work, what it has counted.",
}
EXAMPLES = Path(__file__).with_name("examples.json")

TAKEN: tuple[type[BaseModel], ...] = (
    requests.AnswerRequest,
    requests.ApprovalRequest,
    requests.CancelRequest,
    requests.DrainRequest,
    requests.Nothing,
    requests.PruneRequest,
    requests.SignalRequest,
    requests.StopRequest,
    requests.WakeRequest,
)

_SCHEMAS = "#/components/schemas/"
_OF_A_RUN = {"description": "Of a run, as it was answered to who woke it.", "example": "run_01KQ3V5T3M8Y6W2N4R7PZ9XHDA"}
_IN_PATHS: Mapping[str, Json] = {
    "run_id": _OF_A_RUN,
    "path": {"description": "Of the file, as the list of files has it.", "example": "artifacts/report.md"},
    "step": {"description": "The number of a step of the run.", "example": 1},
    "call": {"description": "The number of a model call of the run.", "example": 1},
    "seq": {"description": "The number of a dead letter, as the list has it.", "example": 17},
}
_BETWEEN_SENTENCES = re.compile(r"(?<=\.)\s+")


def tags() -> list[dict[str, Any]]:
    return [{"name": tag, "description": TAGS[tag]} for tag in get_args(Tag)]


def document(app: FastAPI) -> Json:
    if app.openapi_schema is None:
        made = app.openapi()
        parts = made["components"]
        parts["schemas"] = {name: _open(schema) for name, schema in parts["schemas"].items()} | _more_schemas()
        parts["responses"] = errors.problems()
        examples = json.loads(EXAMPLES.read_bytes())
        for call in _calls(made):
            _tell(call, parts["schemas"])
            _show(call, examples.get(call["operationId"], {}))
    return app.openapi()


def _calls(made: Json) -> Iterator[Json]:
    for methods in made["paths"].values():
        yield from methods.values()


def _open(schema: Json) -> Json:
    return {name: value for name, value in schema.items() if (name, value) != ("additionalProperties", False)}


def _more_schemas() -> Json:
    models: list[tuple[type[BaseModel], Literal["validation", "serialization"]]] = [
        *((model, "validation") for model in TAKEN),
        (Problem, "serialization"),
    ]
    _, made = models_json_schema(models, ref_template=_SCHEMAS + "{model}")
    found: Json = made["$defs"]
    return found


def _tell(call: Json, schemas: Json) -> None:
    first, more = _parted(call.pop("description"))
    call["summary"] = first.removesuffix(".")
    if more:
        call["description"] = more
    for parameter in call.get("parameters", ()):
        parameter.update(_IN_PATHS[parameter["name"]] if parameter["in"] == "path" else {})
    for answer in call["responses"].values():
        if "$ref" in answer:
            del answer["description"]
        elif answer["description"] == "Successful Response":
            schema = answer["content"]["application/json"]["schema"]
            answer["description"], _ = _parted(schemas[schema["$ref"].removeprefix(_SCHEMAS)]["description"])


def _parted(text: str) -> tuple[str, str]:
    first, *rest = _BETWEEN_SENTENCES.split(text, maxsplit=1)
    return " ".join(first.split()), "".join(rest)


def _show(call: Json, examples: Json) -> None:
    if sent := examples.get("sent"):
        (body,) = call["requestBody"]["content"].values()
        body["examples"] = {name: {"value": value} for name, value in sent.items()}
    for status, value in examples.get("answered", {}).items():
        (content,) = call["responses"][status]["content"].values()
        content["example"] = value
