#!/usr/bin/env python3
"""A plugin for tests (Ductile plugin protocol v2): does what the payload says, after recording that it was run."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 30
OUTPUT_LIMIT_BYTES = 10 * 1024 * 1024


def _shown(payload: dict[str, Any]) -> str:
    return _ok(output={"payload": payload})


def _ok(**fields: Any) -> str:
    return json.dumps({"status": "ok", "result": "done"} | fields)


def _error(**fields: Any) -> str:
    return json.dumps({"status": "error", "error": "as you wish"} | fields)


def _held(payload: dict[str, Any]) -> str:
    until = time.monotonic() + PATIENCE_SECONDS
    while not Path(payload["until"]).exists() and time.monotonic() < until:
        time.sleep(0.005)
    return _shown(payload)


def _hang(_: dict[str, Any]) -> str:
    time.sleep(PATIENCE_SECONDS)
    return _ok()


def _garbage(_: dict[str, Any]) -> str:
    sys.stderr.write("a word on stderr")
    return "this is no JSON"


def _quit(_: dict[str, Any]) -> str:
    sys.stdout.write(_error())
    raise SystemExit(78)


DEEDS: dict[str, Callable[[dict[str, Any]], str]] = {
    "answer": _shown,
    "emit": lambda payload: _ok(events=[{"type": "probe.emitted", "payload": payload["emitted"]}]),
    "flood": lambda _: "x" * (OUTPUT_LIMIT_BYTES + 1),
    "garbage": _garbage,
    "hang": _hang,
    "hold": _held,
    "insist": lambda _: _error(retry=True),
    "quit": _quit,
    "refuse": lambda _: _error(retry=False, error_class="invalid_arguments"),
    "say": lambda payload: _ok(**payload["says"]),
    "silence": lambda _: "",
    "stumble": lambda _: _error(),
}


def asked(request: dict[str, Any]) -> dict[str, Any]:
    """What the caller sent, without what Ductile adds of its own."""
    payload = (request.get("event") or request).get("payload") or {}
    return {name: value for name, value in payload.items() if not name.startswith("ductile")}


def record(request: dict[str, Any], payload: dict[str, Any]) -> None:
    """One line for each run: a short write to a file opened for appending is never mixed with another's."""
    line = {"command": request["command"], "job_id": request["job_id"], "payload": payload}
    with Path(request["config"]["executions"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    incoming = json.load(sys.stdin)
    given = asked(incoming)
    record(incoming, given)
    sys.stdout.write(DEEDS.get(given.get("do", "answer"), _shown)(given))
