#!/usr/bin/env python3
"""Issues of a GitHub repository or of a folder (Ductile plugin protocol v2). Standard library only."""

import urllib.error
from pathlib import Path
from typing import Any

from agentic_tool import Call, Failure, serve
from issues import Folder, Github

MOST = 5


def similar(issues: Folder | Github, payload: dict[str, Any]) -> str:
    words = {word for word in payload["title"].lower().split() if len(word) > 3}
    found = [(len(words & set(one["title"].lower().split())), one) for one in issues.all()]
    best = sorted((pair for pair in found if pair[0]), key=lambda pair: -pair[0])[:MOST]
    return "\n".join(f"#{one['number']} ({one['state']}) {one['title']}" for _, one in best) or "No issue is like it."


def label(issues: Folder | Github, payload: dict[str, Any]) -> str:
    issues.label(payload["number"], payload["label"])
    return f"Issue {payload['number']} has the label {payload['label']}."


def reply(issues: Folder | Github, payload: dict[str, Any]) -> str:
    issues.reply(payload["number"], payload["text"])
    return f"The reply to issue {payload['number']} is sent."


def answer(call: Call) -> str:
    issues = Github(call.config) if "repository" in call.config else Folder(Path(call.config["folder"]))
    try:
        return {"similar": similar, "label": label, "reply": reply}[call.command](issues, call.arguments)
    except urllib.error.HTTPError as error:
        raise Failure(f"GitHub answered {error.code}", "tool_error", retry=error.code >= 500) from None
    except OSError as error:
        raise Failure(f"the issues cannot be reached: {error}", "transient", retry=True) from None


if __name__ == "__main__":
    serve(similar=answer, label=answer, reply=answer)
