"""Plugins asked as Ductile asks them: one request on stdin, one response on stdout.

Mostly in this process, which takes a hundredth of the time; `run` starts the program as Ductile does.
"""

import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SHIPPED = Path(__file__).parents[2] / "deploy" / "ductile" / "plugins"
PROBE = Path(__file__).parent / "probe"


def a_request(payload: Any, *, command: str = "handle", config: dict[str, Any], seconds: float = 20) -> bytes:
    """A request with so many `seconds` until its deadline. What wakes a plugin by `handle` is an event."""
    request = {
        "protocol": 2,
        "job_id": "job-1",
        "command": command,
        "config": config,
        "state": {},
        "deadline_at": (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(),
    }
    event = {"type": "api.trigger", "payload": payload, "timestamp": "0001-01-01T00:00:00Z"}
    return json.dumps(request | ({"event": event} if command == "handle" else {"payload": payload})).encode()


def ask(
    plugin: Path, payload: Any, *, command: str = "handle", config: dict[str, Any] | None = None, seconds: float = 20
) -> dict[str, Any]:
    return responded(plugin, a_request(payload, command=command, config=config or {}, seconds=seconds))


def responded(plugin: Path, request: bytes) -> dict[str, Any]:
    """The response to these bytes, by the plugin's `main` in this process."""
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with pytest.MonkeyPatch.context() as patch, _alarm_kept():
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(request), encoding="utf-8"))
        patch.setattr(sys, "stdout", output)
        loaded(plugin).main()
    response: dict[str, Any] = json.loads(output.buffer.getvalue())
    return response


def refused(response: dict[str, Any], error_class: str = "invalid_arguments", *, retry: bool = False) -> str:
    """The text of an error, which must be of this class."""
    assert (response["status"], response["error_class"], response["retry"]) == ("error", error_class, retry), response
    return str(response["error"])


def run(
    plugin: Path, request: bytes, *before: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The response to these bytes, by the program. `before`: words of the command before it."""
    done = subprocess.run(
        [*before, plugin / "run.py"],
        input=request,
        capture_output=True,
        cwd=cwd,
        env={"PATH": f"{Path(sys.executable).parent}:{os.defpath}"} | dict(env or {}),
        timeout=30,
        check=True,
    )
    assert done.stderr == b""
    response: dict[str, Any] = json.loads(done.stdout)
    return response


@cache
def loaded(plugin: Path, name: str = "run") -> ModuleType:
    """Its run.py, or another module of it. Those beside it are its own: plugins call them the same."""
    specification = importlib.util.spec_from_file_location(f"plugin_{plugin.name}_{name}", plugin / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.path.insert(0, str(plugin))
    try:
        specification.loader.exec_module(module)
    finally:
        sys.path.remove(str(plugin))
        for beside in plugin.glob("*.py"):
            sys.modules.pop(beside.stem, None)
    return module


@contextmanager
def _alarm_kept() -> Iterator[None]:
    """A plugin sets the alarm to its deadline; it is also the one that ends a test which hangs."""
    handler, (left, _) = signal.getsignal(signal.SIGALRM), signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, left)
