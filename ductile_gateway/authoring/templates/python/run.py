#!/usr/bin/env python3
"""{{name}}: one JSON object comes in on standard input, one goes out on standard output (Ductile plugin protocol v2).

What is written to standard error is told where the call fails.
"""

import json
import sys
from typing import Any


def answer(arguments: dict[str, Any]) -> dict[str, Any]:
    """`result` is for people and the model, `output` for programs. Both are kept in the run's journal."""
    words = arguments["text"].split()
    if not words:
        return {
            "status": "error",
            "error": "the text has no words",
            "error_class": "invalid_arguments",
            "retry": False,  # whether the same call may succeed later
        }
    longest = max(words, key=len)
    counted = "1 word" if len(words) == 1 else f"{len(words)} words"
    return {
        "status": "ok",
        "result": f"{counted}, the longest is {longest}",
        "output": {"words": len(words), "longest": longest},
    }


if __name__ == "__main__":
    request = json.load(sys.stdin)
    # `handle` is given its arguments within an event, other commands beside their name.
    json.dump(answer((request.get("event") or request)["payload"]), sys.stdout)
