"""Malicious requests to the API: each row gets nothing from ours, and what it asks for from the unprotected twin. Idle
connections harm only who holds them, and no secret is in anything that the program writes."""

import asyncio
import gzip
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest

from ductile_gateway.webhooks.signatures import standard_headers, standard_key
from tests.attacks.services import JSON, KEYS, STANDARD_KEY, TOKENS, HttpCaller, Services
from tests.attacks.targets import SIDES, judge, rows

WAKE = b'{"goal": "x"}'
TOKEN = TOKENS["operator"]
READS = (
    *("/v1/runs", "/v1/runs/{run}", "/v1/runs/{run}/entries", "/v1/runs/{run}/timeline", "/v1/runs/{run}/why"),
    *("/v1/runs/{run}/workspace", "/v1/inbox", "/v1/counts", "/v1/health", "/v1/dead-letters"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request. `{run}` in its path is another caller's run."""

    method: str = "POST"
    path: str = "/v1/wake"
    body: bytes = WAKE
    headers: Mapping[str, str] = field(default_factory=lambda: JSON)
    by: str | None = "operator"
    got: Sequence[int] = (202,)
    """Status codes of a successful attack."""

    async def gets(self, caller: HttpCaller) -> bool:
        run = await caller.begin("echo private") if "{run}" in self.path else ""
        asked = {"content": self.body} if self.method != "GET" else {}
        path = self.path.replace("{run}", run)
        answer = await caller.as_(self.by).ask(self.method, path, headers=self.headers, **asked)
        return answer.status_code in self.got


def reads(*paths: str, by: str | None, **headers: str) -> list[Ask]:
    return [Ask(method="GET", path=path, by=by, headers=headers, got=(200,)) for path in paths]


MEDIA = ("", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/json")
OPEN_DOORS = ("/debug", "/debug/vars", "/.env", "/env", "/config", "/v1/settings", "/admin", "/internal")
ASKED: dict[str, tuple[tuple[int, ...], list[Ask]]] = {
    "a number that no column holds": (
        (7,),
        [Ask(body=b'{"goal": "x", "context": {"n": %b}}' % n) for n in (b"1180591620717411303424", b"9" * 4000)],
    ),
    "a body that unfolds": ((11,), [Ask(body=gzip.compress(WAKE), headers={**JSON, "Content-Encoding": "gzip"})]),
    "JSON under another name": ((12, 82), [Ask(headers={"Content-Type": media}) for media in MEDIA]),
    "a token in the address": (
        (62,),
        reads(*(f"/v1/runs?{n}={TOKEN}" for n in ("token", "access_token", "api_key", "authorization")), by=None),
    ),
    "another method by a header": (
        (124,),
        [
            Ask(method="GET", path="/v1/runs/{run}/cancel", headers={name: "POST"}, got=(200, 201, 202, 204))
            for name in ("X-HTTP-Method-Override", "X-Method-Override", "X-HTTP-Method")
        ],
    ),
    "a door that somebody left open": ((66,), reads(*OPEN_DOORS, by="operator")),
}  # fmt: skip


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("asked", rows(ASKED))
async def test_strike(caller: HttpCaller, asked: list[Ask]) -> None:
    judge(caller, {str(ask)[:200]: await ask.gets(caller) for ask in asked})


@pytest.mark.parametrize("side", SIDES)
async def test_what_may_be_asked_is_done(caller: HttpCaller) -> None:
    assert [ask for ask in reads(*READS, by="operator") if not await ask.gets(caller)] == []


PATHS = ("../secret", "%2e%2e/secret", "..%2fsecret", "%2e%2e%2fsecret", "artifacts/../../secret", "./../secret")


@pytest.mark.parametrize("side", SIDES)
async def test_a_file_outside_of_a_run(caller: HttpCaller, outside: Path) -> None:
    head = f"Host: 127.0.0.1\r\nAuthorization: Bearer {caller.token}\r\nConnection: close\r\n\r\n"
    got = {}
    for path in (*PATHS, f"/{outside.parent / 'secret'}", "link", "hard"):
        request = f"GET /v1/runs/{outside.name}/workspace/{path} HTTP/1.1\r\n{head}"
        got[path] = "outside" in await caller.raw(request)
    judge(caller, got)


MANY = 850
"""More than either service accepts."""
SOON_S = 3.0
WAKER = f"Authorization: Bearer {TOKENS['waker']}\r\n"
OF_A_WAKE = f"POST /v1/wake HTTP/1.1\r\nHost: 127.0.0.1\r\n{WAKER}Content-Type: application/json\r\n"


@asynccontextmanager
async def holding(url: str, begun: str) -> AsyncIterator[None]:
    port = int(url.rpartition(":")[2])
    writers = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(MANY)]
    try:
        for writer in writers:
            writer.write(begun.encode())
        yield
    finally:
        for writer in writers:
            writer.close()


async def soon(method: str, url: str, *, body: bytes = b"", headers: dict[str, str] | None = None) -> int:
    began = time.monotonic()
    async with httpx2.AsyncClient(trust_env=False, timeout=10) as client:
        answer = await client.request(method, url, content=body, headers=headers or {})
    assert time.monotonic() - began < SOON_S
    return answer.status_code


@pytest.mark.parametrize(
    "begun", ["", "GET /", f"{OF_A_WAKE}Content-Length: 1000\r\n\r\n{{"], ids=["silence", "heads", "bodies"]
)
async def test_slow_callers_of_the_api_keep_out_neither_probes_nor_others(services: Services, begun: str) -> None:
    operator = {"Authorization": f"Bearer {TOKENS['operator']}", "Content-Type": "application/json"}
    async with holding(services.api, begun):
        assert await soon("GET", f"{services.api}/healthz") == 200
        assert await soon("GET", f"{services.api}/readyz") == 200
        assert await soon("POST", f"{services.api}/v1/wake", body=b'{"goal": "echo x"}', headers=operator) == 202


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
    written = [file for file in services.folder.rglob("*") if file.is_file() and file.name not in GIVEN]
    assert [str(file) for file in written if leaks(file)] == []


def leaks(file: Path) -> list[str]:
    try:
        content = file.read_bytes()
    except FileNotFoundError:  # NATS has removed a block of messages meanwhile
        return []
    return [secret for secret in SECRETS if secret.encode() in content]
