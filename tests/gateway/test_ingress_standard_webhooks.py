"""POST /webhooks/NAME for Standard Webhooks: what is signed, when, under which id, and what comes of it."""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest

from schemas import keys
from tests.gateway.ingress_house import UNIX_NOW, House
from tests.gateway.parts import RUN

KEY = bytes(range(24))
WHSEC = "whsec_" + base64.b64encode(KEY).decode()
DONE = {"type": "scan.done", "data": {"run": RUN, "step": 4, "tool": "scan", "outcome": "ok", "found": {"n": 2}}}
SCAN = {
    "to": "agentic.tool_result",
    "run_id": "/data/run",
    "step": "/data/step",
    "tool": "/data/tool",
    "status": "/data/outcome",
    "result": "/data/found",
    "error": "/data/why",
}
HOOKS = {
    "scanner": {"scheme": "standard", "keys": [{"secret": WHSEC}], "events": {"scan.done": SCAN}},
}


def a_house() -> House:
    return House(webhooks=HOOKS)


async def standard(
    house: House,
    event: Any = DONE,
    *,
    at: str = str(UNIX_NOW),
    name: str = "msg_1",
    key: bytes = KEY,
    replaced: Mapping[str, str] | None = None,
) -> httpx2.Response:
    body = json.dumps(event).encode()
    mac = hmac.new(key, f"{name}.{at}.".encode() + body, hashlib.sha256).digest()
    sent = {
        "webhook-id": name,
        "webhook-timestamp": at,
        "webhook-signature": f"v1,{base64.b64encode(mac).decode()}",
    }
    return await house.post("/webhooks/scanner", body, sent | dict(replaced or {}))


async def test_a_standard_webhook_answers_a_step() -> None:
    house = a_house()
    answer = await standard(house)
    assert (answer.status_code, answer.json()["receiver_event_id"]) == (202, keys.result(RUN, 4, 1))
    payload = house.events()[0]["payload"]
    assert (payload["step"], payload["status"], payload["result"]) == (4, "ok", {"n": 2})
    assert payload["untrusted"] is True


async def test_the_same_message_with_a_new_time_is_a_duplicate() -> None:
    house = a_house()
    await standard(house)
    answer = await standard(house, at=str(UNIX_NOW + 200))
    assert (answer.status_code, answer.json()["status"]) == (200, "duplicate")
    assert len(house.bus.messages) == 1


@pytest.mark.parametrize("at", [str(UNIX_NOW - 301), str(UNIX_NOW + 301), "nan", "", "1_795_262_400", "179526240"])
async def test_a_standard_webhook_of_another_time_is_refused(at: str) -> None:
    answer = await standard(a_house(), at=at)
    assert (answer.status_code, answer.json()) == (401, {"error": "unauthorized"})


async def test_the_id_of_a_standard_webhook_is_signed_with_it() -> None:
    assert (await standard(a_house(), replaced={"webhook-id": "msg_2"})).status_code == 401


async def test_a_secret_of_one_webhook_opens_no_other() -> None:
    assert (await standard(a_house(), key=b"the secret of another one")).status_code == 401


@pytest.mark.parametrize("name", ["", "a.b", "x" * 257])
async def test_the_id_of_a_standard_webhook_is_short_and_without_a_dot(name: str) -> None:
    assert (await standard(a_house(), name=name)).status_code == 400
