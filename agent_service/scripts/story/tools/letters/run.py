#!/usr/bin/env python3
"""Compares two pages in a note, slowly, and files notes in a folder (Ductile plugin protocol v2)."""

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

FACT = re.compile(r"^\W*([A-Z][\w ]+): (.+)$", re.MULTILINE)


def compare(config: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    time.sleep(config["compare_s"])
    first, second = (dict(FACT.findall(given[name]["text"])) for name in ("first", "second"))
    shared = [name for name in first if name in second]
    same = [f"- {name}: {first[name]}" for name in shared if first[name] == second[name]]
    counting, other = (first, second) if given["counts"] == "first" else (second, first)
    differ = [
        f"- {name}: {counting[name]} (the other page: {other[name]})" for name in shared if first[name] != second[name]
    ]
    text = "\n".join(("# Two pages compared", "", "They agree:", *same, "", "They differ:", *differ, ""))
    artifact = {"name": "note.md", "content_type": "text/markdown", "text": text}
    told = f"{len(same)} fact agrees, {len(differ)} differ"
    return {"status": "ok", "result": told, "artifacts": [artifact]}


def send(config: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    letter = Path(config["outbox"], f"{re.sub(r'[^a-z0-9]+', '-', given['subject'].lower())}.txt")
    letter.write_text(f"To: {given['to']}\nSubject: {given['subject']}\n\n{given['note']['text']}", encoding="utf-8")
    return {"status": "ok", "result": f"sent to {given['to']}: {letter.name}"}


if __name__ == "__main__":
    request = json.load(sys.stdin)
    command = {"compare": compare, "send": send}[request["command"]]
    json.dump(command(request["config"], request["payload"]), sys.stdout)
