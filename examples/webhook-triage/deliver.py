#!/usr/bin/env python3
"""Sends an event as GitHub does, signed with WEBHOOK_SECRET, to the gateway of this machine (WEBHOOK_URL)."""

import hashlib
import hmac
import os
import sys
import urllib.request
from pathlib import Path

URL = "http://127.0.0.1:8710/webhooks/issues"


def main() -> None:
    body = Path(sys.argv[1]).read_bytes()
    signature = hmac.new(os.environ["WEBHOOK_SECRET"].encode(), body, hashlib.sha256).hexdigest()
    headers = {
        "Content-Type": "application/json",
        "X-GitHub-Event": "issues",
        "X-GitHub-Delivery": hashlib.sha256(body).hexdigest()[:32],
        "X-Hub-Signature-256": f"sha256={signature}",
    }
    request = urllib.request.Request(os.environ.get("WEBHOOK_URL", URL), body, headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        sys.stdout.write(f"{answer.status} {answer.read().decode()}\n")


if __name__ == "__main__":
    main()
