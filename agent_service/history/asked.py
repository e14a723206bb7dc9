"""The ask of a run in words, from its API view: commands load this without the core."""

import json
from collections.abc import Iterator
from typing import Any


def asked(asks: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Names and texts in reading order; a text without a name goes on with the one before. `asks` is as the API shows
    it. Budgets are told by their reason alone.
    """
    if asks is None:
        return
    match asks["kind"]:
        case "approval" | "in_doubt":
            yield from _call(asks)
        case "question":
            yield "asks", asks["question"]
            yield from (("choice", choice) for choice in asks["choices"])
            told = (("tried", asks["tried"]), ("why", asks["would_change"]), ("because", asks["reason"]))
            yield from ((name, text) for name, text in told if text)
    if asks["untrusted"]:
        yield "warning", f"{asks['untrusted']} brought untrusted content, whose author may be behind this"
    if asks["expires_at"]:
        yield "until", f"{asks['expires_at'][:10]} {asks['expires_at'][11:19]} UTC"


def _call(asks: dict[str, Any]) -> Iterator[tuple[str, str]]:
    task = f", {asks['task']} of round {asks['round']}" if asks.get("task") else ""
    call = f"step {asks['step']}{task}: {asks['tool']} {asks['command']}"
    yield "approve" if asks["kind"] == "approval" else "in doubt", call if asks["tool"] else "another goal than was set"
    for name, value in (asks["arguments"] or {}).items():
        yield "", f"{_exactly(name)}: {_exactly(value)}"
    yield "because", asks["reason"]
    if asks["arguments_hash"]:
        yield "hash", asks["arguments_hash"]


def _exactly(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
