#!/usr/bin/env python3
"""A plugin for tests (Ductile plugin protocol v2) that asks for evidence. Each call notes that it began, and the id of
its process, and goes on once a file of its name is there."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 60
ROUNDS = ("first", "second", "third")
GRAPH = [
    {"id": "a", "action": "retrieve", "query": "a"},
    {"id": "b", "action": "retrieve", "query": "b", "depends_on": "none"},
    {"id": "c", "action": "plugin", "plugin": "seeker", "command": "put", "input": {"name": "c"}, "depends_on": ["a"]},
    {"id": "d", "action": "retrieve", "query": "d", "depends_on": ["b"]},
    {"id": "e", "action": "retrieve", "query": "e", "depends_on": ["a", "b"]},
    {"id": "f", "action": "retrieve", "query": "f", "depends_on": ["c", "d", "e"]},
]


def wait(notes: Path, name: str) -> None:
    """Note that the call began, and wait until it may go on."""
    with (notes / "calls").open("a", encoding="utf-8") as calls:
        calls.write(f"{name}\n")
    (notes / f"{name}.pid").write_text(str(os.getpid()), encoding="utf-8")
    (notes / f"{name}.begun").touch()
    until = time.monotonic() + PATIENCE_SECONDS
    while not (notes / f"{name}.go").exists() and time.monotonic() < until:
        time.sleep(0.005)


def seek(payload: dict[str, Any], over: int) -> dict[str, Any]:
    """What comes of the course after so many rounds."""
    if payload["course"] == "rounds" and over < len(ROUNDS):
        return continuing({"action": "retrieve", "query": ROUNDS[over], "reason": "it is not known yet"})
    if payload["course"] == "graph" and not over:
        return continuing({"action": "multi-step", "tasks": GRAPH})
    told = [f"{item['task']} {item['status']} {item['result']['summary']}" for item in payload["evidence"]]
    return {"status": "ok", "result": "; ".join(told)}


def continuing(asked: dict[str, Any]) -> dict[str, Any]:
    return {"status": "continuation", "continuation": asked}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    payload, notes = (request.get("event") or request).get("payload") or {}, Path(request["config"]["notes"])
    if request["command"] == "seek":
        over = len({item["round"] for item in payload.get("evidence", [])})
        wait(notes, f"seek{over}")
        return seek(payload, over)
    name = payload["query" if request["command"] == "look" else "name"]
    wait(notes, name)
    return {"status": "ok", "result": f"seen: {name}"}


if __name__ == "__main__":
    json.dump(answer(json.JSONDecoder().raw_decode(sys.stdin.readline())[0]), sys.stdout)
