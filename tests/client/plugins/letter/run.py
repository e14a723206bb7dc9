#!/usr/bin/env -S python3 -IS
"""Plugin that writes a letter, an artifact of the run (Ductile plugin protocol v2)."""

import json
import sys
from typing import Any


def answer(request: dict[str, Any]) -> dict[str, Any]:
    letter = {"name": "letter.txt", "content_type": "text/plain", "text": request["payload"]["text"]}
    return {"status": "ok", "result": "written", "artifacts": [letter]}


if __name__ == "__main__":
    json.dump(answer(json.load(sys.stdin)), sys.stdout)
