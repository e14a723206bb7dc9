"""The API behind a real server: malformed requests, readers that do not read, and users of callers."""

import asyncio
import json
import os
import pwd
import socket
from contextlib import ExitStack, closing

import pytest

from agent_service.api.os_user import os_user
from groundwork.http import BoundedProtocol
from tests.http import wire
from tests.http.house import House, serving
from tests.http.wire import HEAD
from tests.kit.waiting import until

BODY = json.dumps({"goal": "x"})
POST = f"POST /v1/wake HTTP/1.1\r\n{HEAD}Content-Type: application/json\r\n"


async def good(port: int) -> bool:
    answer = await wire.send(port, f"{POST}Connection: close\r\nContent-Length: {len(BODY)}\r\n\r\n{BODY}")
    return answer.status == 202


@pytest.mark.parametrize(
    "rest",
    [
        f"Content-Length: 1000000000\r\n\r\n{BODY}",
        "Transfer-Encoding: chunked\r\n\r\n" + 100 * ("10000\r\n" + " " * 0x10000 + "\r\n"),
    ],
    ids=["says it", "without end"],
)
async def test_a_body_that_is_too_large_is_not_waited_for(port: int, house: House, rest: str) -> None:
    answer = await wire.send(port, f"{POST}{rest}")
    assert (answer.status, answer.closed) == (413, True)
    assert await house.how_many() == 0
    assert await good(port)


async def test_who_hangs_up_within_the_body_wakes_nothing(port: int, house: House) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{POST}Content-Length: {len(BODY)}\r\n\r\n{BODY[:-1]}".encode())
    await writer.drain()
    writer.close()
    assert await good(port)
    assert await house.how_many() == 1


NO_GOOD_HTTP = {
    "both lengths": f"{POST}Content-Length: {len(BODY)}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x",
    "two lengths": f"{POST}Content-Length: 1\r\nContent-Length: 14\r\n\r\n{BODY}",
    "negative length": f"{POST}Content-Length: -1\r\n\r\n{BODY}",
    "signed length": f"{POST}Content-Length: +12\r\n\r\n{BODY}",
    "no chunk length": f"{POST}Transfer-Encoding: chunked\r\n\r\nzz\r\n{BODY}\r\n0\r\n\r\n",
    "unknown transfer encoding": f"{POST}Transfer-Encoding: gzip, chunked, x\r\n\r\n0\r\n\r\n",
    "bare line feeds": f"POST /v1/wake HTTP/1.1\nHost: 127.0.0.1\n\n{BODY}",
    "space before the colon": f"GET /v1/runs HTTP/1.1\r\n{HEAD}X : y\r\n\r\n",
    "NUL in a header": f"GET /v1/runs HTTP/1.1\r\n{HEAD}X: a\0b\r\n\r\n",
    "a header behind the body": f"POST /v1/wake HTTP/1.1\r\n{HEAD}Transfer-Encoding: chunked\r\n\r\n"
    f"{len(BODY):x}\r\n{BODY}\r\n0\r\nContent-Type: application/json\r\n\r\n",
    "unknown version": "GET /v1/runs HTTP/9.9\r\n\r\n",
    "TLS to a plain port": "\x16\x03\x01\x02\x00\x01",
    "another protocol": "SSH-2.0-OpenSSH_9.9\r\n",
}


async def test_a_probe_may_ask_for_the_head_alone(port: int) -> None:
    for path in ("/healthz", "/readyz"):
        answer = await wire.send(port, f"HEAD {path} HTTP/1.1\r\nHost: any\r\nConnection: close\r\n\r\n")
        assert (answer.status, answer.text.partition("\r\n\r\n")[2]) == (200, "")


async def test_what_is_no_good_http_is_refused_and_hung_up_on(port: int, house: House) -> None:
    for name, request in NO_GOOD_HTTP.items():
        answer = await wire.send(port, request)
        assert answer.status in (0, 400, 401, 415, 421), name
        assert answer.answers <= 1, f"{name}: one request was taken for two"
        assert await house.how_many() == 0, name
    assert await good(port)


async def test_the_host_is_judged_as_it_is_sent_and_not_by_the_target(port: int) -> None:
    head = HEAD.replace("127.0.0.1", "evil.com")
    for target in ("http://127.0.0.1/v1/runs", "//127.0.0.1/v1/runs", "/v1/runs?/healthz", "/v1/runs#/healthz"):
        assert (await wire.get(port, target, head)).status in (400, 421)
    assert (await wire.get(port, "/v1/runs?/healthz", "Host: 127.0.0.1/healthz?\r\n")).status == 421
    assert (await wire.get(port, "/v1/runs", "Host: 127.0.0.1\r\n")).status == 401


TOO_LARGE = {
    "1000 headers": "".join(f"X-{n}: {'y' * 100}\r\n" for n in range(1000)),
    "a long header": f"X: {'y' * 65_536}\r\n",
    "a very long header": f"X: {'y' * 3_000_000}\r\n",
    "a header without end": f"X: {'y' * 3_000_000}",
    "headers without end": "X: y\r\n" * 400_000,
}


async def test_a_head_that_is_too_large_is_refused_and_hung_up_on(port: int) -> None:
    for name, head in TOO_LARGE.items():
        answer = await wire.send(port, f"GET /v1/runs HTTP/1.1\r\n{HEAD}{head}\r\n")
        assert (answer.status, answer.closed) in ((400, True), (0, True)), name
    assert await good(port)


class Impatient(BoundedProtocol):
    take_within_s = 0.2


async def test_a_reader_that_does_not_read_is_let_go(house: House, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with house.client() as client:
        large = {"goal": "x", "context": {"a": "x" * 200_000}}
        run = (await client.post("/v1/wake", json=large)).json()["run_id"]
        await client.post(f"/v1/runs/{run}/cancel")
    async with serving(house.app, send_buffer=4096, protocol=Impatient) as port:
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(deaf, ("127.0.0.1", port))
            await loop.sock_sendall(deaf, f"GET /v1/runs/{run}/events HTTP/1.1\r\n{HEAD}\r\n".encode())
            await until(lambda: "a client that does not read was disconnected" in caplog.messages)
        assert await good(port)
    assert "Exception in ASGI application" not in caplog.text


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.7", "::1"])
def test_a_caller_on_this_machine_is_its_user_and_one_that_has_gone_or_only_listens_is_nobody(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with ExitStack() as stack:
        service, other = (stack.enter_context(socket.create_server((host, 0), family=family)) for _ in range(2))
        caller = stack.enter_context(closing(socket.create_connection((host, service.getsockname()[1]))))
        accepted, peer = service.accept()
        stack.enter_context(closing(accepted))
        scope = {"client": peer[:2], "server": accepted.getsockname()[:2]}
        assert os_user(scope) == pwd.getpwuid(os.getuid()).pw_name
        assert os_user(scope | {"client": other.getsockname()[:2]}) == ""
        caller.close()
        assert os_user(scope) == ""
