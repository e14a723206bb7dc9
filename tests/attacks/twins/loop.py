"""Agent loop without protection: it asks the model, executes its calls, shows it the results, and repeats."""

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
        steps.append(action | {"result": _result(action, plugins)})
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


def _result(action: dict[str, Any], plugins: Path) -> Any:
    request = {"command": action["command"], "payload": action["arguments"]}
    done = subprocess.run(
        [sys.executable, str(plugins / action["tool"] / "run.py")],
        input=json.dumps(request).encode(),
        capture_output=True,
        check=False,
    )
    return json.loads(done.stdout or b"null")
