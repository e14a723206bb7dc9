#!/usr/bin/env python3
"""A plugin for tests (Ductile plugin protocol v2): shows what it is given, counts its runs, fails as it is told to."""

import json
import os
import signal
import subprocess
import sys
import time
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


def misbehave(payload: dict[str, Any]) -> dict[str, Any]:
    """All but a stumble and a crash go on until they are stopped."""
    match payload["how"]:
        case "stumble":
            return {"status": "error", "error": "as you wish", "retry": True, "error_class": "transient"}
        case "crash":
            sys.stderr.write("a line before\nValueError: the key is hunter2-secret\n")
            raise SystemExit(1)
        case "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        case "family":  # a child in the same process group, which ignores SIGTERM and has to go too
            subprocess.Popen(["/bin/sh", "-c", f"trap '' TERM; sleep {PATIENCE_SECONDS}"])
    Path(payload["file"]).touch()
    time.sleep(PATIENCE_SECONDS)
    return {}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    payload = (request.get("event") or request).get("payload") or {}
    if request["command"] == "misbehave":
        return misbehave(payload)
    return record(payload, request["job_id"]) if request["command"] == "record" else show(request)


if __name__ == "__main__":
    json.dump(answer(json.JSONDecoder().raw_decode(sys.stdin.readline())[0]), sys.stdout)
