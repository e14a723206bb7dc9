#!/usr/bin/env python3
"""{{name}}: what is written to standard error is told where the call fails."""

from agentic_tool import Call, Failure, serve


def handle(call: Call) -> dict[str, object]:
    """`result` is for people and the model, `output` for programs. Both are kept in the run's journal."""
    words = call.arguments["text"].split()
    if not words:
        raise Failure("the text has no words")
    longest = max(words, key=len)
    counted = "1 word" if len(words) == 1 else f"{len(words)} words"
    return {"result": f"{counted}, the longest is {longest}", "output": {"words": len(words), "longest": longest}}


if __name__ == "__main__":
    serve(handle=handle)
