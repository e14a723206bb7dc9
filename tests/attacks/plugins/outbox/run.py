#!/usr/bin/env python3
"""Plugin that repeats its text as often as told."""

import json
import sys

request = json.JSONDecoder().raw_decode(sys.stdin.readline())[0]
payload = (request.get("event") or request).get("payload") or {}
text = payload.get("text", "nothing") * payload.get("times", 1)
json.dump({"status": "ok", "result": text[:200], "output": {"text": text}}, sys.stdout)
