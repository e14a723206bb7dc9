"""Addresses that lead into the house: nothing is sent there, neither by a callback nor by a tool."""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from tests.attacks.doors import HttpDoor
from tests.attacks.kit import attack
from tests.attacks.twins import fetching
from tests.kit.waiting import until

ENDED = ("done", "failed", "escalated", "cancelled")
HERE = [
    "127.0.0.1",
    "localhost",
    "[::1]",
    "0.0.0.0",  # noqa: S104 # as an address to call
    "0",
    "2130706433",
    "0x7f.1",
    "0177.0.0.1",
    "127.1",
    "127.0.0.1.",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "LOCALHOST",
]
"""This machine, as it can be written."""
INSIDE = [
    "10.0.0.1",
    "172.16.0.1",
    "192.168.0.1",
    "100.64.0.1",
    "[fc00::1]",
    "[fe80::1]",
    "224.0.0.1",
    "255.255.255.255",
]
CLOUDS = ["169.254.169.254", "[fd00:ec2::254]", "metadata.google.internal", "[::ffff:169.254.169.254]"]
"""Where clouds keep the secrets of their machines."""
ODD = [
    "https://me:secret@example.org/",
    "https://example.org@127.0.0.1/",
    "https://127.0.0.1#@example.org/",
    "https://example.org\\@127.0.0.1/",
    "https://example.org:22/",
    "https://example.org:4222/",
    "http://example.org/",
    "file:///etc/passwd",
    "gopher://example.org/",
    "unix:///run/x.sock",
    "ftp://example.org/",
    "//example.org/",
    "https://example\u3002org/",
]


@pytest.fixture
def target(door: HttpDoor) -> HttpDoor:
    return door


async def takes(target: HttpDoor, url: str) -> bool:
    """Whether a run begins that wants its ending sent there."""
    return await target.wakes(json.dumps({"goal": "echo x", "callback": url}).encode())


@pytest.mark.parametrize("side", ["ours"])
async def test_a_callback_into_the_world_is_taken(target: HttpDoor) -> None:
    assert await takes(target, "https://192.0.43.8/")


@attack(70, 72)
@pytest.mark.parametrize("host", HERE)
async def test_a_callback_to_this_machine(target: HttpDoor, host: str) -> bool:
    return await takes(target, f"https://{host}/")


@attack(70, 76)
@pytest.mark.parametrize("host", INSIDE)
async def test_a_callback_into_the_house(target: HttpDoor, host: str) -> bool:
    return await takes(target, f"https://{host}/")


@attack(71)
@pytest.mark.parametrize("host", CLOUDS)
async def test_a_callback_to_the_secrets_of_a_cloud(target: HttpDoor, host: str) -> bool:
    return await takes(target, f"https://{host}/latest/meta-data/")


@attack(74)
@pytest.mark.parametrize("url", ODD)
async def test_a_callback_to_an_odd_address(target: HttpDoor, url: str) -> bool:
    return await takes(target, url)


@dataclass(slots=True)
class Secret:
    """A door of the house that asks for no token; whoever comes is counted."""

    port: int = 0
    visits: int = 0


@pytest.fixture(scope="module")
def inner_door() -> Iterator[Secret]:
    secret = Secret()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            secret.visits += 1
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Nothing is told of anybody."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    secret.port = server.server_port
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield secret
    server.shutdown()
    server.server_close()
    thread.join()


@attack(72, 77)
@pytest.mark.parametrize("host", HERE[:1] + HERE[1:2] + HERE[3:9] + HERE[10:12])
async def test_a_page_of_the_house(target: HttpDoor, inner_door: Secret, host: str) -> bool:
    inner_door.visits = 0
    url = f"http://{host}:{inner_door.port}/"
    if target.protected:
        await _ended(target, await target.begin(f"fetch {url}"))
    else:
        with contextlib.suppress(OSError, ValueError):
            await asyncio.to_thread(fetching.fetch, url)
    return inner_door.visits > 0


async def _ended(target: HttpDoor, run_id: str) -> None:
    async def ended() -> bool:
        return (await target.get(f"/v1/runs/{run_id}")).json()["state"] in ENDED

    await until(ended, within_s=30)
