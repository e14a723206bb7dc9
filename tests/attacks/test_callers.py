"""Callers who may not, names of others that lead here, and requests that are read otherwise than they are written."""

import asyncio
from pathlib import Path

import httpx2
import pytest

from tests.attacks.doors import JSON, HttpDoor
from tests.attacks.kit import attack
from tests.attacks.stand import TOKENS

OK = httpx2.codes.OK
WAKE = b'{"goal": "x"}'
READS = (
    "/v1/runs",
    "/v1/runs/{run}",
    "/v1/runs/{run}/entries",
    "/v1/runs/{run}/timeline",
    "/v1/runs/{run}/why",
    "/v1/runs/{run}/workspace",
    "/v1/inbox",
    "/v1/counts",
    "/v1/health",
    "/v1/dead-letters",
    "/v1/whoami",
    "/metrics",
    "/openapi.json",
    "/docs",
)
ACTS = (
    "/v1/runs/{run}/cancel",
    "/v1/runs/{run}/signals",
    "/v1/runs/{run}/approvals",
    "/v1/runs/{run}/answers",
    "/v1/runs/{run}/dismiss",
    "/v1/dead-letters/1/discard",
    "/v1/dead-letters/1/retry",
)
HARMLESS = {"kind": "resume", "decision": "reject", "answer": "x"}


@pytest.fixture
def target(door: HttpDoor) -> HttpDoor:
    return door


@attack(121)
@pytest.mark.parametrize("path", READS)
async def test_reading_without_a_token(target: HttpDoor, path: str) -> bool:
    run = await target.begin("echo private")
    return (await target.as_(None).get(path.format(run=run))).status_code == OK


@attack(121)
@pytest.mark.parametrize("path", READS[:-4])
async def test_reading_with_a_token_that_only_wakes(target: HttpDoor, path: str) -> bool:
    run = await target.begin("echo private")
    return (await target.as_("waker").get(path.format(run=run))).status_code == OK


@attack(121)
@pytest.mark.parametrize("name", ["reader", "waker", None])
@pytest.mark.parametrize("path", ACTS)
async def test_acting_without_the_scope(target: HttpDoor, path: str, name: str | None) -> bool:
    run = await target.begin("echo mine")
    answer = await target.as_(name).ask("POST", path.format(run=run), json=HARMLESS)
    return answer.status_code not in (401, 403)


@attack(61, 63)
@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer wrong-but-as-long-as-the-right-one",
        f"Bearer {TOKENS['operator'][:-1]}",
        f"Bearer {TOKENS['operator']}x",
        f"Bearer  {TOKENS['operator']}",
        f"Bearer {TOKENS['operator'].upper()}",
        f"Basic {TOKENS['operator']}",
        f"Token {TOKENS['operator']}",
        TOKENS["operator"],
        "Bearer " + "x" * 6000,
        "Bearer null",
    ],
    ids=lambda header: header[:24],
)
async def test_a_token_of_another_shape(target: HttpDoor, header: str) -> bool:
    return await target.as_(None).wakes(WAKE, JSON | {"Authorization": header})


@attack(62)
@pytest.mark.parametrize("name", ["token", "access_token", "api_key", "authorization"])
async def test_a_token_in_the_address(target: HttpDoor, name: str) -> bool:
    return (await target.as_(None).get(f"/v1/runs?{name}={TOKENS['operator']}")).status_code == OK


@attack(84)
@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "127.0.0.1@evil.example", "a/healthz?", ""]
)
async def test_a_name_of_somebody_else_that_leads_here(target: HttpDoor, host: str) -> bool:
    head = f"GET /v1/runs HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {target.token}\r\nConnection: close\r\n\r\n"
    return b" 200 " in (await target.raw(head.encode())).split(b"\r\n")[0]


@attack(83)
@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1.evil.example"])
async def test_a_page_of_another_origin_that_reads(target: HttpDoor, origin: str) -> bool:
    answer = await target.get("/v1/runs", headers={"Origin": origin})
    return "access-control-allow-origin" in answer.headers


@attack(82)
@pytest.mark.parametrize("origin", ["https://evil.example", "null"])
async def test_a_page_of_another_origin_that_begins_a_run(target: HttpDoor, origin: str) -> bool:
    return await target.wakes(WAKE, JSON | {"Origin": origin})


@attack(124)
@pytest.mark.parametrize("header", ["X-HTTP-Method-Override", "X-Method-Override", "X-HTTP-Method"])
async def test_another_method_by_a_header(target: HttpDoor, header: str) -> bool:
    run = await target.begin("echo go on")
    answer = await target.ask("GET", f"/v1/runs/{run}/cancel", headers={header: "POST"})
    return answer.status_code < 300  # it was done


@attack(109, 119, 123)
@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "%2e%2e/secret",
        "..%2fsecret",
        "%2e%2e%2fsecret",
        "artifacts/../../secret",
        "./../secret",
        "//secret-outside",
        "link",
        "hard",
    ],
)
async def test_a_file_outside_of_a_run(target: HttpDoor, path: str, outside: Path) -> bool:
    run = outside.name
    address = f"/v1/runs/{run}/workspace/{path.replace('/secret-outside', str(outside.parent / 'secret'))}"
    head = f"GET {address} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {target.token}\r\n"
    return b"outside" in await target.raw(f"{head}Connection: close\r\n\r\n".encode())


@attack(122)
async def test_the_next_run_by_its_number(target: HttpDoor) -> bool:
    run = await target.begin("echo mine")
    head, number = run[:-1], run[-1]
    guesses = [head + chr(ord(number) + n) for n in (-1, 1)] + ["run_1", "run_2"]
    found = await asyncio.gather(*(target.get(f"/v1/runs/{guess}") for guess in guesses))
    return any(answer.status_code == OK and answer.json() for answer in found)


@attack(66)
@pytest.mark.parametrize(
    "path", ["/debug", "/debug/vars", "/.env", "/env", "/config", "/v1/settings", "/admin", "/internal"]
)
async def test_a_door_that_somebody_left_open(target: HttpDoor, path: str) -> bool:
    return (await target.get(path)).status_code == OK


@attack(19)
@pytest.mark.parametrize(
    "head",
    [
        "Content-Length: 13\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nPOST /v1/wake HTTP/1.1\r\n",
        "Transfer-Encoding: xchunked\r\nContent-Length: 13\r\n\r\n" + WAKE.decode(),
        "Content-Length: 13\r\nContent-Length: 14\r\n\r\n" + WAKE.decode(),
        "Content-Length: +13\r\n\r\n" + WAKE.decode(),
        "Content-Length: 13\r\nX-Bad : y\r\n\r\n" + WAKE.decode(),
        "Content-Length: 13\r\nHost: evil.example\r\n\r\n" + WAKE.decode(),
    ],
    ids=["both lengths", "unknown coding", "two lengths", "signed length", "space in a header", "two hosts"],
)
async def test_a_request_with_two_meanings(target: HttpDoor, head: str) -> bool:
    start = f"POST /v1/wake HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {target.token}\r\n"
    answer = await target.raw(f"{start}Content-Type: application/json\r\n{head}".encode())
    return b" 202 " in answer.split(b"\r\n")[0]
