"""Addresses that lead into the house: nothing is sent there, neither by a callback nor by a tool."""

import json

import pytest

from tests.attacks.doors import HttpDoor
from tests.attacks.kit import attack

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
