#!/usr/bin/env python3
"""Files a note as a Markdown file in the folder of the configuration (Ductile plugin protocol v2)."""

import json
import re
import sys
from pathlib import Path
from typing import Any


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The response to a request."""
    title, text = request["payload"]["title"], request["payload"]["text"]
    name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    if not name:
        return refused("the title has neither letters nor digits: give one that a file can be named by")
    note = f"{mark(request)}# {title}\n\n{text.strip()}\n"
    file = Path(request["config"]["folder"], f"{name}.md")
    try:
        file.write_text(note, encoding="utf-8")
    except OSError as error:
        return refused(f"the note cannot be written: {error.strerror}", "configuration")
    artifact = {"name": file.name, "content_type": "text/markdown", "text": note}
    return {"status": "ok", "result": f"Filed as {file.name}", "artifacts": [artifact]}


def mark(request: dict[str, Any]) -> str:
    """Front matter that says so where strangers may have worded the note: `knowledge` hands it on to later runs."""
    run_id = str(request.get("job_id", "")).partition(":")[0]
    return f"---\nuntrusted: {run_id or 'true'}\n---\n" if request.get("untrusted") else ""


def refused(why: str, error_class: str = "invalid_arguments") -> dict[str, Any]:
    return {"status": "error", "error": why, "error_class": error_class, "retry": False}


if __name__ == "__main__":
    json.dump(answer(json.load(sys.stdin)), sys.stdout)
