#!/usr/bin/env python3
"""Plugin that runs the code of its request, which stores what it obtains in `loot`."""

import json
import sys

request = json.JSONDecoder().raw_decode(sys.stdin.readline())[0]
payload = (request.get("event") or request).get("payload") or {}
found = {"loot": None, "request": request}
try:
    exec(payload["code"], found)  # noqa: S102 # this is what it is for
except Exception as error:  # noqa: BLE001 # a strike that is warded off
    found["refused"] = repr(error)
output = {"loot": found["loot"], "refused": found.get("refused")}
json.dump({"status": "ok", "result": "struck", "output": output}, sys.stdout)
