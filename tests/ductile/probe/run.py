#!/usr/bin/env python3
"""A plugin for tests (Ductile plugin protocol v2): does what the payload says, after recording that it was run."""

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 30
OUTPUT_LIMIT_BYTES = 10 * 1024 * 1024
EXITS = {"quit": 78}
ON_STDERR = {"garbage": "a word on stderr"}


def _ok(**fields: Any) -> str:
    return json.dumps({"status": "ok", "result": "done"} | fields)


def _error(**fields: Any) -> str:
    return json.dumps({"status": "error", "error": "as you wish"} | fields)


def answer(payload: Mapping[str, Any]) -> str:
    return _ok(output={"payload": payload})


def _hold(payload: Mapping[str, Any]) -> str:
    until = time.monotonic() + PATIENCE_SECONDS
    while not Path(payload["until"]).exists() and time.monotonic() < until:
        time.sleep(0.005)
    return answer(payload)


def _hang(_: Mapping[str, Any]) -> str:
    time.sleep(PATIENCE_SECONDS)
    return _ok()


DEEDS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "answer": answer,
    "flood": lambda _: "x" * (OUTPUT_LIMIT_BYTES + 1),
    "garbage": lambda _: "this is no JSON",
    "hang": _hang,
    "hold": _hold,
    "quit": lambda _: _error(),
    "refuse": lambda _: _error(retry=False, error_class="invalid_arguments"),
    "say": lambda payload: _ok(**payload["says"]),
    "silence": lambda _: "",
    "stumble": lambda _: _error(),
}


def asked(request: Mapping[str, Any]) -> dict[str, Any]:
    """The caller's payload, without Ductile's own fields."""
    payload = (request.get("event") or request).get("payload") or {}
    return {name: value for name, value in payload.items() if not name.startswith("ductile")}


if __name__ == "__main__":
    incoming = json.load(sys.stdin)
    given = asked(incoming)
    line = {"command": incoming["command"], "job_id": incoming["job_id"], "payload": given}
    # A short write to a file opened for appending is never mixed with another's.
    with Path(incoming["config"]["executions"]).open("a", encoding="utf-8") as record:
        record.write(json.dumps(line) + "\n")
    do = given.get("do", "answer")
    sys.stdout.write(DEEDS.get(do, answer)(given))
    sys.stderr.write(ON_STDERR.get(do, ""))
    sys.exit(EXITS.get(do, 0))
