"""The OpenAPI document: what FastAPI makes of the calls, `examples.json`, and the script-free page at /docs.

Answers may get further fields in later versions, so their schemas do not rule any out; bodies are strict.
"""

import html
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from agent_service.api import errors, requests
from agent_service.api.refusals import TITLES, Problem

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


STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
pre { background: #8881; padding: .75rem; overflow-x: auto; } code, pre { font: 14px/1.4 ui-monospace, monospace; }
h2, h3 { border-top: 1px solid #8884; padding-top: 1rem; } th, td { text-align: left; padding: 0 1rem 0 0; }
p { white-space: pre-line; } :root { color-scheme: light dark; }
"""


def page(document: Json) -> str:
    about, parts = document["info"], document["components"]
    schemas = [_schema(name, schema) for name, schema in parts["schemas"].items()]
    groups = [_group(tag, document["paths"], parts["responses"]) for tag in document["tags"]]
    body = [_tag("h1", f"{about['title']} {about['version']}"), _tag("p", about["description"]), *groups]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(about["title"])}</title>'
        f"<style>{STYLE}</style>{''.join(body)}<h2>Problems</h2>{_problems()}<h2>Schemas</h2>{''.join(schemas)}"
        "<p>For programs: "
        '<a href="openapi.json">openapi.json</a></p></html>'
    )


def _group(tag: Json, paths: Json, refusals: Json) -> str:
    calls = [
        _call(method, path, call, refusals)
        for path, methods in paths.items()
        for method, call in methods.items()
        if tag["name"] in call["tags"]
    ]
    return "".join((_tag("h2", tag["name"].capitalize()), _tag("p", tag["description"]), *calls))


def _call(method: str, path: str, call: Json, refusals: Json) -> str:
    needs = [scope for scheme in call["security"] for scopes in scheme.values() for scope in scopes]
    return "".join(
        (
            _tag("h3", f"{method.upper()} {path}", "code"),
            _tag("p", f"{call['summary']}. {call.get('description', '')}"),
            _tag("p", f"Needs a token with scope: {', '.join(needs)}." if needs else "Open to everybody."),
            _table(_parameter(p) for p in call.get("parameters", [])),
            *(_body(media) for media in call.get("requestBody", {}).get("content", {}).values()),
            _table(_answer(status, answer, refusals) for status, answer in call["responses"].items()),
            *(_example(answer) for answer in call["responses"].values()),
        )
    )


def _body(media: Json) -> str:
    name = media["schema"]["$ref"].rpartition("/")[2]
    shown = [_shown(f"For example {what}", one["value"]) for what, one in media.get("examples", {}).items()]
    return f'<p>Takes <a href="#{name}">{name}</a></p>{"".join(shown)}'


def _answer(status: str, answer: Json, refusals: Json) -> tuple[str, str]:
    known = refusals[answer["$ref"].rpartition("/")[2]] if "$ref" in answer else answer
    return status, known["description"]


def _example(answer: Json) -> str:
    examples = (media["example"] for media in answer.get("content", {}).values() if "example" in media)
    return "".join(_shown("An answer", example) for example in examples)


def _problems() -> str:
    rows = (f'<tr id="{code}">{_tag("th", code, "code")}{_tag("td", title)}</tr>' for code, title in TITLES.items())
    return f"<table>{''.join(rows)}</table>"


def _parameter(parameter: Json) -> tuple[str, str]:
    return f"{parameter['name']} ({parameter['in']})", parameter.get("description", "")


def _schema(name: str, schema: Json) -> str:
    return f'<a id="{html.escape(name)}"></a>{_shown(name, schema)}'


def _shown(title: str, value: object) -> str:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return f"<details><summary>{html.escape(title)}</summary>{_tag('pre', text)}</details>"


def _table(rows: Iterator[tuple[str, str]]) -> str:
    cells = "".join(f"<tr>{_tag('th', left, 'code')}{_tag('td', right)}</tr>" for left, right in rows)
    return f"<table>{cells}</table>" if cells else ""


def _tag(name: str, text: str, within: str = "") -> str:
    inner = html.escape(text)
    return f"<{name}><{within}>{inner}</{within}></{name}>" if within else f"<{name}>{inner}</{name}>"
