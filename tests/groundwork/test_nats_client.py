"""What the client of nats-py does not do by itself: speak to nobody in the clear, and answer only who asked."""

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg

from agent_service.workbench.dev import free_port
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.micro_service import micro_service
from groundwork.nats.settings import NatsSettings
from groundwork.service.errors import Misconfigured
from tests.groundwork.test_nats_link import make_certificate
from tests.kit.bus import a_stream, server_with
from tests.kit.waiting import until

PRIVATE = "never-in-the-clear"
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")


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


@pytest.mark.attack(107)
@pytest.mark.parametrize(
    "ways", [{"scheme": "tls"}, {"scheme": "nats", "tls_ca": True}], ids=["by the address", "by a file"]
)
@needs_openssl
async def test_a_server_without_tls_is_told_nothing(ways: dict[str, Any], tmp_path: Path, unused_port: int) -> None:
    server, ca = InTheClear(), make_certificate(tmp_path)[1] if "tls_ca" in ways else None
    urls = (f"{ways['scheme']}://127.0.0.1:{unused_port}",)
    async with server.at(unused_port):
        with pytest.raises(Misconfigured, match="does not speak TLS"):
            await connect(NatsSettings(urls=urls, user="agent", password=PRIVATE, tls_ca=ca))
    assert (server.connections, server.told) == (1, b"")


async def test_a_server_without_tls_is_told_the_login_where_nobody_asked_for_tls(unused_port: int) -> None:
    server = InTheClear()
    url = f"nats://127.0.0.1:{unused_port}"
    async with server.at(unused_port):
        with contextlib.suppress(Exception):
            await connect(NatsSettings(urls=(url,), user="agent", password=PRIVATE), timeout_s=0.5)
        assert PRIVATE.encode() in server.told


@pytest.mark.attack(107)
@needs_openssl
async def test_a_server_that_takes_the_place_of_one_with_tls_is_told_nothing(tmp_path: Path, unused_port: int) -> None:
    key, certificate = make_certificate(tmp_path)
    tls = {"tls": {"cert_file": str(certificate), "key_file": str(key)}}
    users = {"authorization": {"users": [{"user": "agent", "password": PRIVATE}]}}
    settings = NatsSettings(
        urls=(f"tls://127.0.0.1:{unused_port}",), user="agent", password=PRIVATE, tls_ca=certificate
    )
    async with server_with(tmp_path, unused_port, tls | users):
        link = await connect(settings)
        await link.subscribe("orders", _nothing)
    accomplice = InTheClear()
    async with accomplice.at(0) as port:
        impostor = InTheClear(connect_urls=[f"localhost:{port}"])
        async with impostor.at(unused_port):
            await until(lambda: impostor.connections > 1)
            assert not await link.send("orders", b"my secret order")
    async with server_with(tmp_path, unused_port, tls | users):
        await until(lambda: link.connected)
    assert (impostor.told, accomplice.connections) == (b"", 0)
    await link.close()


@pytest.mark.attack(97)
@pytest.mark.parametrize("reply", ["orders.cancel", "$JS.API.STREAM.PURGE.WORK"])
async def test_an_answer_goes_to_no_subject_but_one_of_answers(reply: str, link: NatsLink) -> None:
    await a_stream(link, subjects=["work.>", "orders.>"])
    await link.publish("work.a", b"kept", msg_id="one", headers={})
    service = await micro_service(link, name="clerk", description="Answers.")
    said: list[bytes] = []
    await link.subscribe(reply, partial(_keep, said))
    for asked in ("$SRV.PING", "$SRV.INFO", "$SRV.STATS.clerk"):
        await link.client.publish(asked, b"{}", reply=reply)
    assert await link.request("$SRV.PING.clerk", b"")  # a question after these, and answered
    await link.client.flush()
    assert (said, (await link.jetstream.stream_info("WORK")).state.messages) == ([], 1)
    await service.stop()


async def test_a_flush_that_was_given_up_leaves_the_link_hearing(link: NatsLink) -> None:
    for _ in range(20):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(link.client.flush(), 1e-6)
    await link.client.flush()
    heard: list[bytes] = []
    await link.subscribe("news", partial(_keep, heard))
    await link.send("news", b"still here")
    await until(lambda: heard)
    assert link.reconnects == 0


async def _nothing(_: object) -> None:
    return


async def _keep(kept: list[bytes], message: Msg) -> None:
    kept.append(message.data)


async def test_whoever_is_cancelled_as_its_answer_comes_ends(link: NatsLink) -> None:
    async def says_nothing(_: Msg) -> None:
        return

    await link.subscribe("silent", says_nothing)
    asking = asyncio.create_task(link.client.request("silent", timeout=60))
    await until(lambda: getattr(link.client, "_resp_map", None))
    next(iter(getattr(link.client, "_resp_map").values())).set_result(Msg(link.client))  # noqa: B009 # nats-py's own
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_whoever_leaves_a_server_comes_to_another(tmp_path: Path) -> None:
    (one := tmp_path / "one").mkdir()
    (other := tmp_path / "other").mkdir()
    async with server_with(one, free_port(), {}) as first, server_with(other, free_port(), {}) as second:
        for address in (first, second):
            await (await connect(NatsSettings(urls=(f"nats://{address}",)))).close()  # it is there
        link = await connect(NatsSettings(urls=(f"nats://{first}", f"nats://{second}")))
        for times in range(1, 9):
            left = link.client.connected_url
            await link.go_elsewhere()
            await until(partial(_is_back, link, times))
            assert link.client.connected_url != left
        await link.close()


def _is_back(link: NatsLink, times: int) -> bool:
    return link.reconnects == times and link.connected
