"""Limits on connections, heads and bodies before a request reaches the application."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from groundwork import http
from groundwork.http import BodyReader, BodyRefused, BoundedProtocol
from tests.http.house import serving

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
LONG = 16 * 1024 * 1024
"""More than the kernel keeps for a reader."""
OK, BAD = b"HTTP/1.1 200", b"HTTP/1.1 400"

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
    await PlainTextResponse("hello")(scope, receive, send)


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async with serving(greet, protocol=Impatient) as port:
        yield port


async def connect(port: int, first: bytes = b"") -> Connection:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(first)
    await writer.drain()
    return reader, writer


async def all_of(connection: Connection) -> bytes:
    """Everything received until the server disconnects."""
    reader, writer = connection
    async with asyncio.timeout(10):
        try:
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


async def trickle(connection: Connection, data: bytes) -> bytes:
    """The data again and again, faster than any time for silence, until the server hangs up; all that came back."""
    _, writer = connection
    answer = asyncio.create_task(all_of(connection))
    for _ in range(1000):
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
    assert answer[: len(BAD)] in (BAD, b"")  # what is still being sent may reset the connection first
    assert await served(port)


@pytest.mark.parametrize(
    ("first", "more"),
    [
        pytest.param(GET, b"\r\n", id="empty lines after an answer"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n", b"x", id="a body that nobody reads"),
    ],
)
async def test_what_means_nothing_keeps_no_connection_open(port: int, first: bytes, more: bytes) -> None:
    """An answer to nothing would be taken for one to the next request."""
    reader, writer = await connect(port, first)
    assert (await reader.readuntil(b"hello")).startswith(OK)
    assert await trickle((reader, writer), more) == b""


async def test_the_longest_silent_connection_makes_room_for_one_that_comes(port: int) -> None:
    silent = [await connect(port, part) for part in (b"", b"", b"GET / HT", b"", b"GET", b"")]
    assert await served(port)
    assert await all_of(silent[0]) == b""
    for _, writer in silent:
        writer.close()


@pytest.mark.parametrize(("path", "makes_room"), [(b"/slow ", False), (b"/long ", True)])
async def test_a_reader_that_does_not_read_makes_room_and_one_that_waits_for_its_answer_does_not(
    port: int, path: bytes, *, makes_room: bool
) -> None:
    others = [await connect(port, GET.replace(b"/ ", path)) for _ in range(Impatient.max_connections)]
    for reader, _ in others if makes_room else ():
        await reader.readexactly(len(OK))  # it is being sent
    assert (await all_of(await connect(port, LAST))).startswith(OK) is makes_room
    assert makes_room or not any(reader.at_eof() for reader, _ in others)
    for _, writer in others:
        writer.close()


async def test_a_reader_that_does_not_read_the_rest_of_its_last_answer_is_disconnected() -> None:
    gone = asyncio.Event()

    class Unpaused(Impatient):
        take_within_s = 0.3

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
            super().connection_made(transport)
            transport.set_write_buffer_limits(high=2 * LONG)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            gone.set()

    async with serving(greet, protocol=Unpaused) as port:
        _, writer = await connect(port, LAST.replace(b"/ ", b"/long "))
        await asyncio.wait_for(gone.wait(), 30)
        writer.close()


async def test_a_body_that_does_not_come_makes_room(port: int) -> None:
    begun = b"POST /whole HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"
    others = [await connect(port, begun) for _ in range(Impatient.max_connections)]
    assert (await all_of(await connect(port, LAST))).startswith(OK)
    assert await all_of(others[0]) == b""
    for _, writer in others:
        writer.close()


async def test_few_requests_in_a_row_are_answered_and_very_many_are_refused() -> None:
    async with serving(greet) as port:
        few = await all_of(await connect(port, GET * 20 + LAST))
        assert few.count(OK) == 21
        assert OK not in await all_of(await connect(port, GET * 5000))
        assert await served(port)


LIMIT = 100


def request(receive: Callable[[], Awaitable[Message]]) -> Request:
    return Request({"type": "http", "method": "POST", "headers": []}, receive)


async def whole() -> Message:
    return {"type": "http.request", "body": b"whole"}


async def never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def test_a_body_that_comes_at_once_is_read_though_slow_ones_hold_every_place_and_the_oldest_goes() -> None:
    bodies = BodyReader(LIMIT, room=4 * LIMIT)
    slow = [asyncio.create_task(bodies.read(request(never))) for _ in range(4)]
    await asyncio.sleep(0)
    assert await bodies.read(request(whole)) == b"whole"
    with pytest.raises(BodyRefused) as refusal:
        await asyncio.wait_for(slow[0], 5)
    assert refusal.value.status == 408
    assert not any(reading.done() for reading in slow[1:])
    for reading in slow[1:]:
        reading.cancel()


async def test_a_body_is_read_though_the_oldest_has_just_run_out_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "READ_WITHIN_S", 0)
    bodies = BodyReader(LIMIT, room=LIMIT)
    slow = asyncio.create_task(bodies.read(request(never)))
    for _ in range(2):
        await asyncio.sleep(0)
    assert await bodies.read(request(whole)) == b"whole"
    with pytest.raises(BodyRefused):
        await slow
