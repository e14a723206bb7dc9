"""The OpenAPI document: FastAPI's, completed with `examples.json`; and the page at /docs, which has no script.

Schemas of answers allow further fields, which later versions may add; bodies are strict.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from jinja2 import Template
from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema

from agent_service.api.errors import MEDIA_TYPE, ApiError, Code, Problem
from agent_service.api.inspection import BYTES, TYPES
from agent_service.api.requests import WakeAnswer
from agent_service.api.service import Ready
from groundwork.service.program import shipped
from schemas.operations import RUN, Operation, Tag

Json = dict[str, Any]

ABOUT = """Durable, goal-directed runs: wake one, watch it, speak to it, cancel it. Accepted is not completed.

Send `Authorization: Bearer <token>`, with a token that has the scope of the call; an agent without tokens answers
everybody on its own machine. What is refused is a problem (RFC 9457). docs/API.md tells how the calls work together."""
LICENSE = {"name": "Apache License 2.0", "identifier": "Apache-2.0"}
TAGS: Mapping[Tag, str] = {
    "runs": "Wake runs, see where they stand, follow them, and take what they made.",
    "people": "What waits for a person, and what a person says to a run.",
    "insight": "Inspect one run: timeline, diagnosis, prompts of the model.",
    "dead letters": "Messages that could not be handled: read them, send them again, take them away.",
    "operation": "How the agent is, which tools there are; stop everything, drain it, delete expired runs.",
    "service": "Who is asking, whether the agent lives and can work, what it has counted.",
}
EXAMPLES = Path(__file__).with_name("examples.json")
PAGE = Path(__file__).with_name("docs.html")
SKILL = shipped("deploy", "skill", "agentic-loop", "SKILL.md")
OF_A_BODY = (400, 408, 413, 415, 422, 503)
_FILES = {kind: {"schema": {"type": "string", "format": "binary"}} for kind in (BYTES, *TYPES.values())}
_EVENTS = {"description": "An event for each entry, and a comment now and then while there is none."}
_ANSWERS: Mapping[str, dict[int | str, Json]] = {
    "wake": {200: {"model": WakeAnswer, "description": "The run was waited for, and has ended."}},
    "download_file": {200: {"description": "The file; its media type follows from its suffix.", "content": _FILES}},
    "follow_run": {200: _EVENTS, 204: {"description": "The reader has seen the run to its end."}},
    "follow_all": {200: _EVENTS},
    "readyz": {503: {"model": Ready, "description": "Not ready: `checks` names the trouble."}},
    "metrics": {200: {"description": "The text that Prometheus reads."}},
}
"""Responses beyond the type of an operation, by status."""

_SCHEMAS = "#/components/schemas/"
_IN_PATHS: Mapping[str, Json] = {
    "run_id": {
        "description": "The id of a run, from the answer to its wake.",
        "example": "run_01KQ3V5T3M8Y6W2N4R7PZ9XHDA",
    },
    "path": {"description": "The path of a file, from the list of files.", "example": "artifacts/report.md"},
    "step": {"description": "The number of a step of the run.", "example": 1},
    "call": {"description": "The number of a model call of the run.", "example": 1},
    "seq": {"description": "The number of a dead letter, from their list.", "example": 17},
}


def _refusals(operation: Operation, body: type[BaseModel] | None, *, limited: bool) -> dict[int | str, Json]:
    statuses = {*operation.errors, *((401, 403) if operation.scope else ()), *((429,) if limited else ())}
    statuses |= {422} if operation.path.startswith("/v1/") else set()
    statuses |= {404} if "{" in operation.path else set()
    statuses |= {410} if operation.path.startswith(RUN) else set()
    if body:
        statuses |= {*OF_A_BODY, *((409,) if "{" in operation.path else ())}
    which = (*sorted(statuses), "default")
    return {status: {"$ref": f"#/components/responses/{_name(status)}"} for status in which}


def _name(status: int | str) -> str:
    return f"Problem{status}" if isinstance(status, int) else "Problem"


def _problems() -> Json:
    of_status: dict[int | str, list[Code]] = {"default": [Code.BROKEN], 415: [Code.NOT_JSON]}
    for code in Code:
        of_status.setdefault(code.status, []).append(code)
    return {_name(status): _problem(status, codes) for status, codes in of_status.items()}


def _problem(status: int | str, codes: list[Code]) -> Json:
    refusal = ApiError(codes[0], codes[0].means, status=status if isinstance(status, int) else None)
    example = refusal.body() | {"instance": "urn:uuid:5a5f3ba6-5fd5-4a21-9a28-3a6b8b4a6e0f"}
    media = {"schema": {"$ref": f"{_SCHEMAS}{Problem.__name__}"}, "example": example}
    titles = "Refused, or failed" if status == "default" else "; ".join(code.means for code in codes)
    return {"description": titles, "content": {MEDIA_TYPE: media}}


class Documents:
    """The FastAPI application, and the operations that serve its documents."""

    def __init__(self) -> None:
        self.app = FastAPI(
            title="Agentic Loop",
            version="1",
            description=ABOUT,
            openapi_url=None,
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,
            license_info=LICENSE,
            servers=[{"url": "/", "description": "The agent that this document is of"}],
            openapi_tags=[{"name": tag, "description": TAGS[tag]} for tag in get_args(Tag)],
            generate_unique_id_function=lambda route: route.name,
            telemetry={"tracing": False, "metrics": False, "logs": False},  # ours are in groundwork.telemetry
        )
        self.bodies: list[type[BaseModel]] = []

    def describe(self, operation: Operation, body: type[BaseModel] | None, answers: type, *, limited: bool) -> Json:
        """Arguments of a route that are for the document. `limited`: the number of waiting callers is bounded."""
        extra: Json = {} if operation.scope else {"security": []}
        if body:
            self.bodies.append(body)
            content = {"application/json": {"schema": {"$ref": f"{_SCHEMAS}{body.__name__}"}}}
            extra["requestBody"] = {"required": not _may_be_empty(body), "content": content}
        return {
            "summary": operation.does[0].upper() + operation.does[1:],
            "response_description": " ".join(re.split(r"(?<=\.)\s", answers.__doc__ or "", maxsplit=1)[0].split()),
            "tags": [operation.tag],
            "responses": _refusals(operation, body, limited=limited) | _ANSWERS.get(operation.name, {}),
            "openapi_extra": extra,
            "include_in_schema": operation.listed,
        }

    async def openapi(self) -> JSONResponse:
        return JSONResponse(self.document())

    async def docs(self) -> HTMLResponse:
        return HTMLResponse(Template(PAGE.read_text(), autoescape=True).render(self.document(), codes=tuple(Code)))

    async def llms(self) -> PlainTextResponse:
        """The skill without its front matter."""
        return PlainTextResponse(SKILL.read_text(encoding="utf-8").partition("\n---\n\n")[2])

    def document(self) -> Json:
        if self.app.openapi_schema is None:
            made = self.app.openapi()
            parts = made["components"]
            parts["schemas"] = {
                name: _extensible(schema) for name, schema in parts["schemas"].items()
            } | self._schemas()
            parts["responses"] = _problems()
            examples = json.loads(EXAMPLES.read_bytes())
            for methods in made["paths"].values():
                for call in methods.values():
                    _describe_call(call)
                    _add_examples(call, examples.get(call["operationId"], {}))
        return self.app.openapi()

    def _schemas(self) -> Json:
        _, made = models_json_schema(
            [*((model, "validation") for model in dict.fromkeys(self.bodies)), (Problem, "serialization")],
            ref_template=_SCHEMAS + "{model}",
        )
        found: Json = made["$defs"]
        return found


def _describe_call(call: Json) -> None:
    for parameter in call.get("parameters", ()):
        parameter.update(_IN_PATHS.get(parameter["name"], {}) if parameter["in"] == "path" else {})
    for answer in call["responses"].values():
        if "$ref" in answer:
            del answer["description"]


def _may_be_empty(model: type[BaseModel]) -> bool:
    try:
        model()
    except ValidationError:
        return False
    return True


def _extensible(schema: Json) -> Json:
    return {name: value for name, value in schema.items() if (name, value) != ("additionalProperties", False)}


def _add_examples(call: Json, examples: Json) -> None:
    if sent := examples.get("sent"):
        (body,) = call["requestBody"]["content"].values()
        body["examples"] = {name: {"value": value} for name, value in sent.items()}
    for status, value in examples.get("answered", {}).items():
        (content,) = call["responses"][status]["content"].values()
        content["example"] = value
