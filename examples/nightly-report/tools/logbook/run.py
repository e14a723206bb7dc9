#!/usr/bin/env python3
"""Counts what is in logs, and files reports (Ductile plugin protocol v2)."""

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

LEVEL = re.compile(r"\b(ERROR|WARNING|INFO|DEBUG)\b")
LONGEST = 300


def read(config: dict[str, Any], payload: dict[str, Any]) -> dict[str, Any]:
    levels: Counter[str] = Counter()
    errors = []
    for file in sorted(Path(config["logs"]).glob("*.log")):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            found = LEVEL.search(line)
            levels[found[1] if found else "other"] += 1
            if found and found[1] == "ERROR":
                errors.append(f"{line[:LONGEST]} ({file.name})")
    newest = sorted(errors)[-payload.get("errors", 10) :] if payload.get("errors", 10) else []
    counted = ", ".join(f"{number} {level}" for level, number in levels.most_common()) or "no lines at all"
    told = "\n".join((f"In the logs: {counted}.", *(f"- {error}" for error in newest)))
    return {"status": "ok", "result": told, "output": {"levels": dict(levels)}}


def file(config: dict[str, Any], payload: dict[str, Any]) -> dict[str, Any]:
    report = Path(config["reports"], f"{payload['day']}.md")
    text = f"# The night to {payload['day']}\n\n{payload['text'].strip()}\n"
    report.write_text(text, encoding="utf-8")
    artifact = {"name": report.name, "content_type": "text/markdown", "text": text}
    return {"status": "ok", "result": f"The report is filed as {report.name}.", "artifacts": [artifact]}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The response to a request."""
    commands = {"read": read, "file": file}
    try:
        return commands[request["command"]](request["config"], request.get("payload") or {})
    except OSError as error:
        told = f"{error.filename}: {error.strerror}"
        return {"status": "error", "error": told, "error_class": "configuration", "retry": False}


if __name__ == "__main__":
    json.dump(answer(json.load(sys.stdin)), sys.stdout)
