"""Plugins run as Ductile runs them: one process, one request on stdin, one response on stdout."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

SHIPPED = Path(__file__).parents[2] / "deploy" / "ductile" / "plugins"
PROBE = Path(__file__).parent / "probe"


def ask(
    plugin: Path, payload: Any, *, command: str = "handle", config: dict[str, Any] | None = None, seconds: float = 20
) -> dict[str, Any]:
    """The response of a plugin. `seconds` until its deadline."""
    request = {
        "protocol": 2,
        "job_id": "job-1",
        "command": command,
        "config": config or {},
        "state": {},
        "deadline_at": (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(),
    }
    if command == "handle":
        request["event"] = {"type": "api.trigger", "payload": payload, "timestamp": "0001-01-01T00:00:00Z"}
    else:
        request["payload"] = payload
    done = subprocess.run(
        [plugin / "run.py"],
        input=json.dumps(request).encode(),
        capture_output=True,
        env={"PATH": f"{Path(sys.executable).parent}:{os.defpath}"},
        timeout=seconds + 10,
        check=True,
    )
    response: dict[str, Any] = json.loads(done.stdout)
    assert done.stderr == b""
    return response
