"""What a run asks of a person, in a terminal: in full, for whoever decides has to know what about."""

import json
from collections.abc import Iterator

from agent_service.cli.client import Json


def rows(asks: Json | None) -> Iterator[tuple[str, str]]:
    """Each thing that is said of it, by its name, in the order in which it is read; nothing where nothing is asked.

    `asks` is fit to be shown. Of a budget the reason says all, which is told of every run that stopped.
    """
    match asks and asks["kind"]:
        case "approval" | "in_doubt":
            yield from _call(asks or {})
        case "question":
            yield from _question(asks or {})
    if asks and asks["expires_at"]:
        yield "until", f"{asks['expires_at'][:10]} {asks['expires_at'][11:19]} UTC"


def _call(asks: Json) -> Iterator[tuple[str, str]]:
    task = f", {asks['task']} of round {asks['round']}" if asks["task"] else ""
    call = f"step {asks['step']}{task}: {asks['tool']} {asks['command']}"
    yield "approve" if asks["kind"] == "approval" else "in doubt", call if asks["tool"] else "another goal than was set"
    for name, value in (asks["arguments"] or {}).items():
        yield "", f"{_exactly(name)}: {_exactly(value)}"
    yield "because", asks["reason"]
    if asks["arguments_hash"]:
        yield "hash", asks["arguments_hash"]


def _exactly(value: object) -> str:
    """As JSON, on one line: a text passes neither for another argument nor for a number."""
    return json.dumps(value, ensure_ascii=False)


def _question(asks: Json) -> Iterator[tuple[str, str]]:
    yield "asks", asks["question"]
    for choice in asks["choices"]:
        yield "", f"- {choice}"
    if asks["tried"]:
        yield "tried", asks["tried"]
    if asks["would_change"]:
        yield "changes", asks["would_change"]
    yield "because", asks["reason"]
