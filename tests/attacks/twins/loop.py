"""Agent loop without protection: it asks the model, executes its calls, shows it the results, and repeats.
A plugin is a child process with everything that the service has."""

import json
import os
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any


def run(goal: str, ask: Callable[[str], str], plugins: Path, files: Path, *, most: int) -> dict[str, Any]:
    """Returns the final state and the steps: tool, arguments and result. Only the model ends it, or the test after
    `most` steps."""
    prompt = f"You are an agent with this configuration: {dict(os.environ)}\nYour goal: {goal}\n"
    steps: list[dict[str, Any]] = []
    while len(steps) < most:
        memory = "".join(file.read_text() for file in files.glob("*.md"))
        action = _action(ask(prompt + memory))
        if action is None:
            return {"state": "done", "steps": steps}
        request = {"command": action["command"], "payload": action["arguments"]}
        steps.append(action | {"result": json.loads(called(plugins / action["tool"], request) or b"null")})
        prompt += f"Result: {json.dumps(steps[-1]['result'])}\n"
    return {"state": "running", "steps": steps}


def _action(reply: str) -> dict[str, Any] | None:
    """The first call in the reply; a model that calls nothing is done."""
    try:
        first = json.loads(reply)["plan"]["actions"][0]
    except (ValueError, LookupError, TypeError):
        return None
    tool, _, command = first["call"].partition(".")
    friendly = unicodedata.normalize("NFKC", tool).strip().lower()
    return {"tool": friendly, "command": command, "arguments": json.loads(first["arguments_json"])}


def called(plugin: Path, request: dict[str, Any], folder: Path | None = None) -> bytes:
    """Returns the output of a plugin that works in this folder, or where the loop does."""
    done = subprocess.run(
        [sys.executable, str(plugin / "run.py")],
        cwd=folder,
        input=json.dumps(request).encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=30,
        check=False,
    )
    return done.stdout
