#!/usr/bin/env python3
"""A plugin for tests (Ductile plugin protocol v2): shows what it is given, counts its runs, fails as it is told to."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 30
RECORDS_WITHIN_S = 300


def show(request: dict[str, Any]) -> dict[str, Any]:
    leftover = sys.stdin.read()
    output = {"request": request, "environment": dict(os.environ), "directory": str(Path.cwd()), "leftover": leftover}
    return {"status": "ok", "result": "shown", "output": output}


def record(payload: dict[str, Any], call: str) -> dict[str, Any]:
    with Path(payload["file"]).open("a", encoding="utf-8") as file:
        file.write(f"{call}\n")
    until = time.monotonic() + RECORDS_WITHIN_S
    while "wait_for" in payload and not Path(payload["wait_for"]).exists() and time.monotonic() < until:
        time.sleep(0.01)
    return {"status": "ok", "result": "recorded"}


def misbehave(payload: dict[str, Any]) -> None:
    MISBEHAVIOURS[payload["how"]]()
    if "file" in payload:
        Path(payload["file"]).touch()
    if payload["how"] in ("hang", "deaf", "family"):
        time.sleep(PATIENCE_SECONDS)


def _write(text: str) -> None:
    sys.stdout.write(text)


def _error(**fields: Any) -> None:
    _write(json.dumps({"status": "error", "error": "as you wish"} | fields))


def _crash() -> None:
    sys.stderr.write("a line before\nValueError: the key is hunter2-secret\n")
    raise SystemExit(1)


def _flood() -> None:
    while True:
        _write("x" * 65536)


def _give_up() -> None:
    _error(retry=True)
    raise SystemExit(78)


def _deaf() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _family() -> None:
    """A child in the same process group, which ignores SIGTERM and has to go too."""
    subprocess.Popen(["/bin/sh", "-c", f"trap '' TERM; sleep {PATIENCE_SECONDS}"])


MISBEHAVIOURS: dict[str, Callable[[], object]] = {
    "garbage": lambda: _write("this is no JSON"),
    "half": lambda: _write('{"status": "ok", "result": "cut sho'),
    "silence": lambda: None,
    "wordless": lambda: _write('{"status": "ok", "result": " "}'),
    "refuse": lambda: _error(retry=False, error_class="invalid_arguments"),
    "stumble": lambda: _error(retry=True, error_class="transient"),
    "crash": _crash,
    "give_up": _give_up,
    "configuration": lambda: sys.exit(78),
    "flood": _flood,
    "hang": lambda: None,
    "deaf": _deaf,
    "family": _family,
}


def answer(request: dict[str, Any]) -> dict[str, Any] | None:
    """The response, or None where there is to be none."""
    payload = (request.get("event") or request).get("payload") or {}
    if request["command"] == "misbehave":
        misbehave(payload)
        return None
    return record(payload, request["job_id"]) if request["command"] == "record" else show(request)


if __name__ == "__main__":
    response = answer(json.JSONDecoder().raw_decode(sys.stdin.readline())[0])
    if response is not None:
        json.dump(response, sys.stdout)
