#!/usr/bin/env python3
"""A plugin for a route of events (Ductile plugin protocol v2): keeps a note, once for each dedupe key."""

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any


def keep(request: dict[str, Any]) -> str:
    """A note with a name made of the key is either there as a whole or not at all."""
    event = request["event"]
    name = hashlib.sha256(event["dedupe_key"].encode()).hexdigest()
    folder = Path(request["config"]["folder"])
    draft = folder / f"{request['job_id']}.draft"
    draft.write_text(event["payload"]["text"], encoding="utf-8")
    try:
        os.link(draft, folder / f"{name}.txt")
    except FileExistsError:
        return "kept before"
    finally:
        draft.unlink()
    return "kept"


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    answer = {"status": "ok", "result": keep(asked), "context": asked.get("context")}
    sys.stdout.write(json.dumps(answer))
