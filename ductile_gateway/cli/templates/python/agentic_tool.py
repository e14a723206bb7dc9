"""Reads the call, and writes the answer (Ductile plugin protocol v2). Copy this file beside the program of your tool.

    from agentic_tool import serve

    def handle(call):
        return f"{len(call.arguments['text'].split())} words"

    serve(handle=handle)

A command returns the text for people and the model, or `{"result": text}` with `output`, `artifacts` or `continuation`.
The answer alone goes to standard output: what a command prints goes to standard error.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any


class Failure(Exception):
    """Ends the call with an error, for the model. `retry`: whether the same call may succeed later."""

    def __init__(self, message: str, error_class: str = "invalid_arguments", *, retry: bool = False) -> None:
        super().__init__(message)
        self.answer = {"status": "error", "error": message, "error_class": error_class, "retry": retry}


class Call:
    """`arguments` fit the schema of the manifest; `config` is the operator's; `request` is the whole request."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.command = request["command"]
        # `handle` is given its arguments within an event, other commands beside their name.
        self.arguments: dict[str, Any] = (request.get("event") or request).get("payload") or {}
        self.config: dict[str, Any] = request.get("config") or {}


def serve(**commands: Callable[[Call], str | dict[str, Any] | None]) -> None:
    """Answers one call. An exception but `Failure` ends the program; its last line becomes the error."""
    call, answers = Call(json.load(sys.stdin.buffer)), os.dup(1)
    os.dup2(2, 1)  # also for the programs that a command starts
    sys.stdout = sys.stderr
    try:
        result = commands[call.command](call)
        answer = {"status": "ok", **(result if isinstance(result, dict) else {"result": result or "done"})}
    except Failure as failure:
        answer = failure.answer
    with os.fdopen(answers, "wb") as out:
        out.write(json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace"))
