#!/usr/bin/env python3
"""Gives a message back (Ductile plugin protocol v2). Standard library only, Python 3.11 or newer."""

from typing import Any

from agentic_tool import Call, Failure, serve


def handle(call: Call) -> dict[str, Any]:
    message = call.arguments.get("message")
    if not isinstance(message, str) or not message.strip():
        raise Failure("message is missing: give a text that is not blank")
    return {"result": message, "output": {"message": message}}


if __name__ == "__main__":
    serve(handle=handle, health=lambda _: "echo can be run")
