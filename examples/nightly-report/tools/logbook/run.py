#!/usr/bin/env python3
"""Counts log lines and files reports (Ductile plugin protocol v2)."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

from agentic_tool import Call, Failure, serve

LEVEL = re.compile(r"\b(ERROR|WARNING|INFO|DEBUG)\b")
LONGEST = 300


def read(call: Call) -> dict[str, Any]:
    levels: Counter[str] = Counter()
    errors = []
    for file in sorted(Path(call.config["logs"]).glob("*.log")):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            found = LEVEL.search(line)
            levels[found[1] if found else "other"] += 1
            if found and found[1] == "ERROR":
                errors.append(f"{line[:LONGEST]} ({file.name})")
    most = call.arguments.get("errors", 10)
    newest = sorted(errors)[-most:] if most else []
    counted = ", ".join(f"{number} {level}" for level, number in levels.most_common()) or "no lines at all"
    told = "\n".join((f"In the logs: {counted}.", *(f"- {error}" for error in newest)))
    return {"result": told, "output": {"levels": dict(levels)}}


def file(call: Call) -> dict[str, Any]:
    report = Path(call.config["reports"], f"{call.arguments['day']}.md")
    text = f"# The night to {call.arguments['day']}\n\n{call.arguments['text'].strip()}\n"
    report.write_text(text, encoding="utf-8")
    artifact = {"name": report.name, "content_type": "text/markdown", "text": text}
    return {"result": f"The report is filed as {report.name}.", "artifacts": [artifact]}


def answer(call: Call) -> dict[str, Any]:
    try:
        return {"read": read, "file": file}[call.command](call)
    except OSError as error:
        raise Failure(f"{error.filename}: {error.strerror}", "configuration") from None


if __name__ == "__main__":
    serve(read=answer, file=answer)
