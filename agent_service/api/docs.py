"""The page at /docs: the OpenAPI document for people, without scripts and without anything from another host."""

import html
import json
from collections.abc import Iterator
from typing import Any

from agent_service.api.problems import TITLES

Json = dict[str, Any]

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
