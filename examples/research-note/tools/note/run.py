#!/usr/bin/env python3
"""Files a note as a Markdown file in the configured folder (Ductile plugin protocol v2)."""

import re
from pathlib import Path
from typing import Any

from agentic_tool import Call, Failure, serve


def write(call: Call) -> dict[str, Any]:
    title, text = call.arguments["title"], call.arguments["text"]
    name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    if not name:
        raise Failure("the title has neither letters nor digits: give one that a file can be named by")
    note = f"{mark(call.request)}# {title}\n\n{text.strip()}\n"
    file = Path(call.config["folder"], f"{name}.md")
    try:
        file.write_text(note, encoding="utf-8")
    except OSError as error:
        raise Failure(f"the note cannot be written: {error.strerror}", "configuration") from None
    artifact = {"name": file.name, "content_type": "text/markdown", "text": note}
    return {"result": f"Filed as {file.name}", "artifacts": [artifact]}


def mark(request: dict[str, Any]) -> str:
    """Returns front matter that marks a note as untrusted; `knowledge` passes the mark on to later runs."""
    run_id = str(request.get("job_id", "")).partition(":")[0]
    return f"---\nuntrusted: {run_id or 'true'}\n---\n" if request.get("untrusted") else ""


if __name__ == "__main__":
    serve(write=write)
