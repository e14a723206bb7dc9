"""Writes the text of the `agentic.yaml` of `agentic init`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2

from groundwork.service.program import shipped

Answers = dict[str, Any]
"""Parsed answers by question (`init.QUESTIONS`), without those that were not asked."""
KEYS = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
LOGIN_SECRETS = {"user": "NATS_PASSWORD", "token": "NATS_TOKEN"}
TEMPLATE = Path(__file__).with_name("agentic.yaml.jinja")


def variables(answers: Answers) -> Iterator[str]:
    """Yields the environment variables that hold the secrets of the file."""
    kind, (provider, _) = answers.get("login", ("", ""))[0], answers["model"]
    yield from [LOGIN_SECRETS[kind]] if kind in LOGIN_SECRETS else []
    yield from [KEYS[provider]] if provider in KEYS and not answers["model_url"] else []
    yield from ["DUCTILE_TOKEN"] if "://" in answers["tools"] else []


def settings_file(answers: Answers) -> str:
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)  # noqa: S701 # YAML
    environment.filters["value"] = _value
    environment.tests["startswith"] = str.startswith
    (provider, model), (login, login_value) = answers["model"], answers.get("login", ("none", ""))
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        answers,
        provider=provider,
        model=model,
        key=KEYS.get(provider),
        login=login,
        login_value=login_value,
        shipped_tools=shipped("deploy", "ductile", "plugins"),
        shipped_pages=shipped("deploy", "knowledge"),
    )


def _value(text: str | Path) -> str:
    return json.dumps(str(text).replace("${", "$${"), ensure_ascii=False)
