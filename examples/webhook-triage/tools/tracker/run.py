#!/usr/bin/env python3
"""The issues of a repository on GitHub, or of a folder (Ductile plugin protocol v2). Standard library only."""

import json
import sys
import urllib.error
from pathlib import Path
from typing import Any

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


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The response to a request."""
    config, payload = request["config"], request.get("payload") or {}
    issues = Github(config) if "repository" in config else Folder(Path(config["folder"]))
    commands = {"similar": similar, "label": label, "reply": reply}
    try:
        return {"status": "ok", "result": commands[request["command"]](issues, payload)}
    except urllib.error.HTTPError as error:
        refusal = {"error": f"GitHub answered {error.code}", "error_class": "tool_error", "retry": error.code >= 500}
    except OSError as error:
        refusal = {"error": f"the issues cannot be reached: {error}", "error_class": "transient", "retry": True}
    return {"status": "error", **refusal}


if __name__ == "__main__":
    json.dump(answer(json.load(sys.stdin)), sys.stdout)
