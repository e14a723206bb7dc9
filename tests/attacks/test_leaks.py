"""Searches for the services' secrets in everything that the program writes."""

import hashlib
import hmac
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ductile_gateway.webhooks.signatures import standard_headers, standard_key
from tests.attacks.services import KEYS, STANDARD_KEY, TOKENS, HttpCaller, Services

SECRETS = (*TOKENS.values(), *KEYS.values(), STANDARD_KEY)
GIVEN = {"agentic.yaml"}
"""Files in which the installer wrote them."""
BODY = json.dumps({"what": "nothing in particular", "issue": {}}).encode()
RELAYED = json.dumps(
    {"event": {"type": "agentic.start", "payload": {"goal": "x"}}, "origin": {"event_id": "e"}}
).encode()


def signed(body: bytes, key: str) -> str:
    return hmac.new(key.encode(), body, hashlib.sha256).hexdigest()


async def deliver(caller: HttpCaller) -> list[int]:
    """The gateway's answers to a correctly signed webhook and to two others."""
    github = {"X-Hub-Signature-256": f"sha256={signed(BODY, KEYS['github'])}", "X-GitHub-Delivery": "d"}
    now = datetime.now(UTC)
    standard = standard_headers("m", BODY, [standard_key(STANDARD_KEY)], at=now) | {"webhook-signature": "v1,wrong"}
    at = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    relay = {"X-Ductile-Peer": "ductile-here", "X-Ductile-Key-Id": "v1", "X-Ductile-Timestamp": at}
    relay["X-Ductile-Signature"] = signed(f"POST\n/ingest/ductile\n{at}\n".encode() + RELAYED, KEYS["github"])
    sent = (
        ("/webhooks/github", BODY, github | {"X-GitHub-Event": "issues"}),
        ("/webhooks/standard", BODY, standard),
        ("/ingest/ductile", RELAYED, relay),
    )
    return [(await caller.ask("POST", path, content=body, headers=head)).status_code for path, body, head in sent]


@pytest.mark.attack(60, 61, 64)
async def test_no_secret_is_in_any_file_after_it_was_used_guessed_and_refused(services: Services) -> None:
    caller = HttpCaller(url=services.api, protected=True, token=TOKENS["operator"])
    run_id = await caller.begin(f"echo {'x' * 10}")
    for token in (TOKENS["operator"][:-1], TOKENS["reader"], f"{TOKENS['waker']}x"):
        wrong = HttpCaller(url=services.api, protected=True, token=token)
        await wrong.ask("POST", f"/v1/runs/{run_id}/cancel", json={})
        await wrong.get(f"/v1/runs?token={token}")
    assert await deliver(HttpCaller(url=services.ingress, protected=True)) == [202, 401, 403]
    assert [str(file) for file in written(services.folder) if leaks(file)] == []


def written(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file() and file.name not in GIVEN]


def leaks(file: Path) -> list[str]:
    try:
        content = file.read_bytes()
    except FileNotFoundError:  # NATS has removed a block of messages meanwhile
        return []
    return [secret for secret in SECRETS if secret.encode() in content]
