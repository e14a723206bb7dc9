"""Gaps of nats-py that the client closes: cleartext logins, and replies to other subjects than inboxes."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg
from nats.micro.service import Service

from agent_service.workbench.dev import free_port
from groundwork.nats.client import MOST_DENIALS, BusClient
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.micro_service import micro_service
from groundwork.nats.publishing import read_headers
from groundwork.nats.settings import NatsSettings
from groundwork.service.errors import Misconfigured, TryAgain
from tests.kit.bus import a_stream, heard, make_certificate, needs_openssl, server_with
from tests.kit.waiting import until

PRIVATE = "never-in-the-clear"


class InTheClear(asyncio.Protocol):
    """A server that asks for no TLS, and keeps all that it is told."""

    def __init__(self, **info: Any) -> None:
        self.told = b""
        self.connections = 0
        self._info = {"server_id": "x", "version": "2.15.1", "max_payload": 1 << 20, "auth_required": True, **info}

    @contextlib.asynccontextmanager
    async def at(self, port: int) -> AsyncIterator[int]:
        """Yields the port, which is a free one for 0."""
        server = await asyncio.get_running_loop().create_server(lambda: self, "127.0.0.1", port)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.connections += 1
        transport.write(b"INFO " + json.dumps(self._info).encode() + b"\r\n")

    def data_received(self, data: bytes) -> None:
        self.told += data


@pytest.mark.parametrize(("scheme", "with_ca"), [("tls", False), ("nats", True)], ids=["by the address", "by a file"])
@needs_openssl
async def test_a_server_without_tls_is_told_nothing(
    scheme: str, tmp_path: Path, unused_port: int, *, with_ca: bool
) -> None:
    server, ca = InTheClear(), make_certificate(tmp_path)[1] if with_ca else None
    place, login = f"127.0.0.1:{unused_port}", {"user": "agent", "password": PRIVATE}
    asking, twin = (NatsSettings(urls=(f"{how}://{place}",), **login) for how in (scheme, "nats"))
    async with server.at(unused_port):
        with pytest.raises(Misconfigured, match="TLS"):
            await connect(asking.model_copy(update={"tls_ca": ca})).__aenter__()
        assert (server.connections, server.told) == (1, b"")
        with contextlib.suppress(Exception):  # who asks for no TLS
            await connect(twin, timeout_s=0.5).__aenter__()
        assert PRIVATE.encode() in server.told


@needs_openssl
async def test_a_server_that_takes_the_place_of_one_with_tls_is_told_nothing(tmp_path: Path, unused_port: int) -> None:
    key, certificate = make_certificate(tmp_path)
    tls = {"tls": {"cert_file": str(certificate), "key_file": str(key)}}
    users = {"authorization": {"users": [{"user": "agent", "password": PRIVATE}]}}
    urls = (f"tls://127.0.0.1:{unused_port}",)
    settings = NatsSettings(urls=urls, user="agent", password=PRIVATE, tls_ca=certificate)
    async with contextlib.AsyncExitStack() as opened:
        async with server_with(tmp_path, unused_port, tls | users):
            link = await opened.enter_async_context(connect(settings))
            await heard(link, "orders")
        accomplice = InTheClear()
        async with accomplice.at(0) as port:
            impostor = InTheClear(connect_urls=[f"localhost:{port}"])
            async with impostor.at(unused_port):
                await until(lambda: impostor.connections > 1)
                assert not await link.send("orders", b"my secret order")
        async with server_with(tmp_path, unused_port, tls | users):
            await until(lambda: link.connected)
        assert (impostor.told, accomplice.connections) == (b"", 0)


@pytest.mark.attack(97)
@pytest.mark.parametrize("reply", ["orders.cancel", "$JS.API.STREAM.PURGE.WORK"])
async def test_an_answer_goes_to_no_subject_but_one_of_answers(reply: str, link: NatsLink) -> None:
    await a_stream(link, subjects=["work.>", "orders.>"])
    await link.publish("work.a", b"kept", msg_id="one", headers={})
    service = await micro_service(Service, link, name="clerk", description="Answers.")
    said = await heard(link, reply)
    for asked in ("$SRV.PING", "$SRV.INFO", "$SRV.STATS.clerk"):
        await link.client.publish(asked, b"{}", reply=reply)
    assert await link.request("$SRV.PING.clerk", b"")  # a question after these, and answered
    await link.client.flush()
    assert (said, (await link.client.jetstream().stream_info("WORK")).state.messages) == ([], 1)
    await service.stop()


HOSTILE = (
    b"PUB odd.1 _INBOX.\xff 0\r\n",
    b"PUB odd.2 _INBOX.a\x0cb 0\r\n",
    b"PUB odd.\xff 0\r\n",
    b"PUB odd.a\x0bb 0\r\n",
    b"HPUB odd.3 7 7\r\ngarbage",
    b"HPUB odd.4 16 16\r\nNATS/1.0 \xff\xff\xff\r\n\r\n",
    b"HPUB odd.5 18 18\r\nNATS/1.0 503 \xff\r\n\r\n",
)
"""Commands that a server passes on."""


def send(link: NatsLink, command: bytes) -> None:
    transport = link.client._transport
    assert transport is not None
    transport.write(command + b"\r\n")


async def test_a_message_that_another_client_would_not_send_leaves_the_link_hearing(link: NatsLink) -> None:
    messages = await heard(link, "odd.*")
    for command in HOSTILE:
        send(link, command)
    await until(lambda: len(messages) == len(HOSTILE))
    assert link.reconnects == 0


async def test_an_answer_that_breaks_its_reader_and_a_slow_subscriber_leave_the_link_hearing(link: NatsLink) -> None:
    async def wait(_: Msg) -> None:
        await asyncio.Event().wait()

    def breaks(_: Msg) -> bool:
        raise OverflowError

    slow = await link.client.subscribe("news", cb=wait, pending_msgs_limit=2)
    for _ in range(9):
        await link.send("news", b"x")
    with pytest.raises(TryAgain, match="cannot be read"):
        await link.client.ask("$JS.API.INFO", b"", within_s=10, more_follow=breaks)
    assert slow.pending_msgs == slow.pending_bytes <= 2
    assert "slow consumer" in link.client.trouble
    assert await link.ask_jetstream("INFO")
    assert link.reconnects == 0


@pytest.mark.parametrize(
    ("block", "headers"),
    [
        (b"NATS/1.0\r\nA: 1:2\r\n\r\n", {"A": "1:2"}),
        (b"NATS/1.0\r\nA:1:2\r\n\r\n", {"A": "1:2"}),
        (b"NATS/1.0 404 No Messages\r\n\r\n", {"Status": "404", "Description": "No Messages"}),
        (b"NATS/1.0 503\r\nA: 1\r\n\r\n", {"Status": "503", "Description": "", "A": "1"}),
    ],
)
def test_headers_are_read_with_their_status_and_where_no_space_follows_a_colon(
    block: bytes, headers: dict[str, str]
) -> None:
    assert read_headers(block) == headers


def test_of_many_denials_the_newest_are_told() -> None:
    client = BusClient(NatsSettings())
    for number in range(1000):
        client._note_violation(f'permissions violation for publish to "$js.ack.work.{number}"')
    assert client.denials[-1] == ("publish", "$js.ack.work.999")
    assert len(client.denials) <= MOST_DENIALS


async def test_a_flush_that_was_given_up_leaves_the_link_hearing(link: NatsLink) -> None:
    for _ in range(20):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(link.client.flush(), 1e-6)
    await link.client.flush()
    news = await heard(link, "news")
    await link.send("news", b"still here")
    await until(lambda: news)
    assert link.reconnects == 0


async def test_a_link_that_leaves_a_server_comes_to_another(tmp_path: Path) -> None:
    (one := tmp_path / "one").mkdir()
    (other := tmp_path / "other").mkdir()
    async with server_with(one, free_port(), {}) as first, server_with(other, free_port(), {}) as second:
        for address in (first, second):
            async with connect(NatsSettings(urls=(f"nats://{address}",))):
                pass  # it is there
        async with connect(NatsSettings(urls=(f"nats://{first}", f"nats://{second}"))) as link:
            for times in range(1, 6):
                left = link.client.connected_url
                await link.switch_server()
                await until(lambda times=times: link.reconnects == times and link.connected)  # type: ignore[misc]  # bound
                assert link.client.connected_url != left
