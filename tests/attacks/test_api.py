"""Malicious requests to the API: each row gets nothing from ours, and what it asks for from the unprotected twin."""

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.attacks.http_caller import JSON, HttpCaller
from tests.attacks.services import TOKENS
from tests.attacks.targets import SIDES, judge, rows

WAKE = b'{"goal": "x"}'
TOKEN = TOKENS["operator"]
READS = (
    *("/v1/runs", "/v1/runs/{run}", "/v1/runs/{run}/entries", "/v1/runs/{run}/timeline", "/v1/runs/{run}/why"),
    *("/v1/runs/{run}/workspace", "/v1/inbox", "/v1/counts", "/v1/health", "/v1/dead-letters"),
)
OF_THE_SERVICE = ("/v1/whoami", "/metrics", "/openapi.json", "/docs")
ACTS = (
    *(f"/v1/runs/{{run}}/{deed}" for deed in ("cancel", "signals", "approvals", "answers", "dismiss")),
    *("/v1/dead-letters/1/discard", "/v1/dead-letters/1/retry"),
)
HARMLESS = json.dumps({"kind": "resume", "decision": "reject", "answer": "x"}).encode()


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


def wakes(*bodies: bytes) -> list[Ask]:
    return [Ask(body=body) for body in bodies]


def with_number(digits: bytes) -> bytes:
    return b'{"goal": "x", "context": {"n": ' + digits + b"}}"


MEDIA = ("", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/json")
NOT_DENIED = tuple(status for status in range(200, 500) if status not in (401, 403))
OPEN_DOORS = ("/debug", "/debug/vars", "/.env", "/env", "/config", "/v1/settings", "/admin", "/internal")
ASKED: dict[str, tuple[tuple[int, ...], list[Ask]]] = {
    "a number that no column holds": ((7,), wakes(*map(with_number, (b"1180591620717411303424", b"9" * 4000)))),
    "a body that unfolds": ((11,), [Ask(body=gzip.compress(WAKE), headers={**JSON, "Content-Encoding": "gzip"})]),
    "JSON under another name": ((12, 82), [Ask(headers={"Content-Type": media}) for media in MEDIA]),
    "reading without a token": ((121,), reads(*READS, *OF_THE_SERVICE, by=None)),
    "acting without the scope": (
        (121,),
        [Ask(path=path, body=HARMLESS, by=by, got=NOT_DENIED) for path in ACTS for by in ("reader", "waker", None)],
    ),
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


async def first_line(caller: HttpCaller, request: str) -> str:
    return (await caller.raw(request)).partition("\r\n")[0]


HOSTS = ("evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "127.0.0.1@evil.example", "a/healthz?", "")


@pytest.mark.parametrize("side", SIDES)
async def test_a_name_of_somebody_else_that_leads_here(caller: HttpCaller) -> None:
    head = f"Authorization: Bearer {caller.token}\r\nConnection: close\r\n\r\n"
    lines = {host: await first_line(caller, f"GET /v1/runs HTTP/1.1\r\nHost: {host}\r\n{head}") for host in HOSTS}
    judge(caller, {host: " 200 " in line for host, line in lines.items()})


PATHS = ("../secret", "%2e%2e/secret", "..%2fsecret", "%2e%2e%2fsecret", "artifacts/../../secret", "./../secret")


@pytest.mark.parametrize("side", SIDES)
async def test_a_file_outside_of_a_run(caller: HttpCaller, outside: Path) -> None:
    head = f"Host: 127.0.0.1\r\nAuthorization: Bearer {caller.token}\r\nConnection: close\r\n\r\n"
    got = {}
    for path in (*PATHS, f"/{outside.parent / 'secret'}", "link", "hard"):
        request = f"GET /v1/runs/{outside.name}/workspace/{path} HTTP/1.1\r\n{head}"
        got[path] = "outside" in await caller.raw(request)
    judge(caller, got)
