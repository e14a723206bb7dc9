"""What a stranger can hold open, or fill, before any request of his reaches the application."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from groundwork.http.bodies import network_of
from groundwork.http.protocol import BoundedProtocol

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"POST /whole HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
LONG = 16 * 1024 * 1024
"""More than the kernel keeps for a reader."""
OK = b"HTTP/1.1 200"

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Impatient(BoundedProtocol):
    """Inherits for the settings only."""

    head_within_s = 0.3
    max_connections = 4


async def greet(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers at once, whatever the body; but `/slow` never, `/whole` when it has the body, and `/long` at length."""
    request = Request(scope, receive)
    if scope["path"] == "/slow":
        await asyncio.Event().wait()
    if scope["path"] == "/whole":
        await request.body()
    if scope["path"] == "/long":
        await PlainTextResponse("x" * LONG)(scope, receive, send)
    await PlainTextResponse("late" if "x-late" in request.headers else "hello")(scope, receive, send)


@contextlib.asynccontextmanager
async def serving(protocol: type[BoundedProtocol] = Impatient) -> AsyncIterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(
            greet, loop="none", http=protocol, lifespan="off", log_config=None, timeout_graceful_shutdown=0
        )
        server = uvicorn.Server(config)
        running = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield int(listener.getsockname()[1])
        finally:
            server.should_exit = True
            await running


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async with serving() as port:
        yield port


async def connect(port: int, first: bytes = b"") -> Connection:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(first)
    await writer.drain()
    return reader, writer


async def all_of(connection: Connection) -> bytes:
    """What comes until the server hangs up."""
    reader, writer = connection
    async with asyncio.timeout(5):
        try:
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


async def trickle(connection: Connection, data: bytes, *, times: int = 1000) -> bytes:
    """The data again and again, faster than any time for silence, until the server hangs up; all that came back."""
    _, writer = connection
    answer = asyncio.create_task(all_of(connection))
    for _ in range(times):
        with contextlib.suppress(ConnectionError):
            writer.write(data)
            await writer.drain()
        done, _ = await asyncio.wait([answer], timeout=0.02)
        if done:
            break
    return await answer


async def served(port: int) -> bool:
    return (await all_of(await connect(port, LAST))).startswith(OK)


@pytest.mark.parametrize("head", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\nX: "])
async def test_a_head_that_comes_byte_by_byte_is_cut_off(port: int, head: bytes) -> None:
    answer = await trickle(await connect(port, head), b"x" if head else b"\n")
    assert answer.startswith(b"HTTP/1.1 400")
    assert await served(port)


@pytest.mark.parametrize("line", [b"X: y\r\n", b"X: " + b"y" * 1000 + b"\r\n", b"y" * 1000])
async def test_a_head_without_end_is_cut_off_at_its_bound(line: bytes) -> None:
    async with serving(BoundedProtocol) as port:
        sent = b"GET / HTTP/1.1\r\n" + (b"X: " if line.startswith(b"y") else b"")
        answer = await trickle(await connect(port, sent), line * (8192 // len(line)), times=200)
    assert answer.startswith(b"HTTP/1.1 400") or not answer


@pytest.mark.parametrize(
    ("first", "more"),
    [
        pytest.param(GET, b"\r\n", id="empty lines after an answer"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n", b"x", id="a body that nobody reads"),
    ],
)
async def test_what_means_nothing_keeps_no_connection_open(port: int, first: bytes, more: bytes) -> None:
    reader, writer = await connect(port, first)
    assert (await reader.readuntil(b"hello")).startswith(OK)
    assert await trickle((reader, writer), more) == b"", (
        "an answer to nothing would be taken for one to the next request"
    )


async def test_what_follows_a_body_is_no_header(port: int) -> None:
    assert (await all_of(await connect(port, CHUNKED + b"0\r\nX-Late: yes\r\n\r\n"))).endswith(b"hello")


async def test_who_comes_is_served_though_all_places_are_taken_by_the_silent(port: int) -> None:
    silent = [await connect(port, part) for part in (b"", b"", b"GET / HT", b"", b"GET", b"")]
    assert await served(port)
    assert await all_of(silent[0]) == b"", "who was silent longest has to go"
    for _, writer in silent:
        writer.close()


async def test_who_waits_for_an_answer_makes_room_for_nobody(port: int) -> None:
    slow = GET.replace(b"/ ", b"/slow ")
    waiting = [await connect(port, slow) for _ in range(Impatient.max_connections)]
    assert await all_of(await connect(port)) == b""
    assert not any(reader.at_eof() for reader, _ in waiting)
    for _, writer in waiting:
        writer.close()


async def test_a_reader_that_does_not_read_makes_room(port: int) -> None:
    unread = [await connect(port, GET.replace(b"/ ", b"/long ")) for _ in range(Impatient.max_connections)]
    for reader, _ in unread:
        await reader.readexactly(len(OK))  # it is being sent
    assert await served(port)
    for _, writer in unread:
        writer.close()


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_a_caller_is_told_by_an_address_or_in_ipv6_by_its_network(address: str, network: str) -> None:
    assert network_of((address, 40000)) == network


async def test_few_requests_in_a_row_are_answered_and_very_many_are_refused() -> None:
    async with serving(BoundedProtocol) as port:
        few = await all_of(await connect(port, GET * 20 + LAST))
        assert few.count(OK) == 21
        assert OK not in await all_of(await connect(port, GET * 5000))
        assert await served(port)
