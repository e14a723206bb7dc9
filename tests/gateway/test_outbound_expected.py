"""What is said at the wake of a callback to which nothing would ever be sent."""

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from ductile_gateway.outbound.service import Callbacks
from ductile_gateway.outbound.settings import CallbackSettings
from tests.gateway.outbound_parts import SECRET


def rules(**network: Any) -> CallbackSettings:
    return CallbackSettings.model_validate({"secret": SECRET, "network": network})


ADDRESSES = {
    "public.example": ["93.184.216.34"],
    "inside.example": ["10.0.0.7"],
    "mixed.example": ["93.184.216.34", "127.0.0.1"],
    "metadata.google.internal": ["169.254.169.254"],
    "disguised.example": ["64:ff9b::7f00:1"],
}


def resolve(host: str, port: int) -> Sequence[str]:
    del port
    if host not in ADDRESSES:
        raise OSError("no such name")
    return ADDRESSES[host]


@pytest.mark.attack(70, 71, 72, 73)
@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/hook",
        "https://localhost/hook",
        "https://[::1]/hook",
        "https://2130706433/hook",
        "https://0x7f.1/hook",
        "https://169.254.169.254/latest",
        "https://[fd00:ec2::254]/latest",
        "https://inside.example/hook",
        "https://mixed.example/hook",
        "https://metadata.google.internal/computeMetadata",
        "https://disguised.example/hook",
        "http://public.example/hook",
    ],
)
async def test_a_callback_into_the_house_has_a_flaw_also_behind_a_name(url: str) -> None:
    assert await Callbacks(rules(), resolve).flaw(url)


@pytest.mark.attack(76)
async def test_a_callback_to_a_host_that_the_operator_does_not_name_has_a_flaw() -> None:
    callbacks = Callbacks(rules(hosts=("public.example",)), resolve)
    assert "is none of the `hosts`" in await callbacks.flaw("https://elsewhere.example/hook")
    assert await callbacks.flaw("https://public.example/hook") == ""


async def test_a_name_server_that_does_not_answer_holds_up_no_wake() -> None:
    answered = threading.Event()

    def slow(host: str, port: int) -> Sequence[str]:
        answered.wait(10)
        return resolve(host, port)

    began = time.monotonic()
    assert await Callbacks(rules(), slow, within_s=0.05).flaw("https://inside.example/hook") == ""
    assert time.monotonic() - began < 5
    answered.set()
