#!/usr/bin/env -S python3 -IS
"""A plugin for tests (Ductile plugin protocol v2): it asks for many lookups at once, each of which takes a while."""

import json
import sys
import time
from typing import Any

LOOK_S = 0.1


def answer(request: dict[str, Any]) -> dict[str, Any]:
    payload = (request.get("event") or request).get("payload") or {}
    if request["command"] == "look":
        time.sleep(LOOK_S)
        return {"status": "ok", "result": "seen"}
    if "evidence" in payload:
        good = sum(item["status"] == "ok" for item in payload["evidence"])
        return {"status": "ok", "result": f"{good} of {payload['tasks']}"}
    tasks = [{"action": "retrieve", "query": f"page {number}"} for number in range(payload["tasks"])]
    return {"status": "continuation", "continuation": {"action": "multi-step", "tasks": tasks}}


if __name__ == "__main__":
    json.dump(answer(json.JSONDecoder().raw_decode(sys.stdin.readline())[0]), sys.stdout)
