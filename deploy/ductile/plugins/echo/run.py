#!/usr/bin/env python3
"""Gives a message back (Ductile plugin protocol v2). Standard library only, Python 3.11 or newer."""

import json
import sys
from typing import Any


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The response to a request."""
    if request["command"] == "health":
        return {"status": "ok", "result": "echo can be run"}
    payload = (request.get("event") or request).get("payload") or {}
    message = payload.get("message")
    if not isinstance(message, str) or not message.strip():
        error = "message is missing: give a text that is not blank"
        return {"status": "error", "error": error, "retry": False, "error_class": "invalid_arguments"}
    return {"status": "ok", "result": message, "output": {"message": message}}


if __name__ == "__main__":
    json.dump(answer(json.load(sys.stdin)), sys.stdout)
