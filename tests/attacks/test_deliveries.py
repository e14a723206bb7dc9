"""Deliveries that nobody signed who may, or that were signed for something else: nothing comes of them."""

import base64
import hashlib
import hmac
import time

import pytest

from ductile_gateway.signatures import standard_key, standard_message
from tests.attacks.deliveries import IngressDoor, hex_of
from tests.attacks.doors import HttpDoor
from tests.attacks.kit import attack
from tests.attacks.stand import KEYS, STANDARD_KEY, TOKENS

STANDARD = standard_key(STANDARD_KEY)
START = {"type": "agentic.start", "payload": {"goal": "echo relayed"}}


@pytest.fixture
def target(side: str, request: pytest.FixtureRequest) -> IngressDoor:
    place = request.getfixturevalue("stand" if side == "ours" else "twin_of_ingress")
    url = place.ingress if side == "ours" else place
    return IngressDoor(door=HttpDoor(url=url, protected=side == "ours"))


def standard(target: IngressDoor, body: bytes, at: str, key: bytes = STANDARD) -> str:
    """A signature of version 1, of a time as it is written."""
    return base64.b64encode(hmac.digest(key, standard_message(target.named, at, body), "sha256")).decode()


@pytest.mark.parametrize("side", ["ours", "twin"])
async def test_what_is_signed_as_agreed_is_taken(target: IngressDoor) -> None:
    assert await target.takes_github(target.body("a"))
    assert await target.takes_standard(target.body("b"))
    assert await target.takes_ductile(target.body("c"))
    assert await target.takes_relayed(START)


@attack(20)
async def test_no_signature_at_all(target: IngressDoor) -> bool:
    return await target.takes_github(target.body(), X_Hub_Signature_256="")


@attack(20)
@pytest.mark.parametrize("signature", ["sha256=", "="])
async def test_an_empty_signature(target: IngressDoor, signature: str) -> bool:
    return await target.takes_github(target.body(), X_Hub_Signature_256=signature)


@attack(21)
async def test_a_body_that_was_written_anew(target: IngressDoor) -> bool:
    signed = hex_of(target.body(), KEYS["github"])
    return await target.takes_github(target.body().replace(b": ", b":   "), X_Hub_Signature_256=f"sha256={signed}")


@attack(22)
@pytest.mark.parametrize("key", ["ductile", "github"])
async def test_a_peer_with_the_key_of_another_door(target: IngressDoor, key: str) -> bool:
    return await target.takes_relayed(START, secret=KEYS[key])


@attack(23)
@pytest.mark.parametrize("change", [str.upper, " {}".format, "={}".format], ids=["upper case", "space", "another sign"])
async def test_hex_in_another_form(target: IngressDoor, change: object) -> bool:
    digest = hex_of(target.body(), KEYS["github"])
    return await target.takes_github(target.body(), X_Hub_Signature_256=f"sha256={change(digest)}")  # type: ignore[operator] # a function


@attack(23)
@pytest.mark.parametrize("junk", ["!!!!", "*", "~~"])
async def test_base64_with_junk(target: IngressDoor, junk: str) -> bool:
    at = str(int(time.time()))
    digest = standard(target, target.body(), at)
    return await target.takes_standard(
        target.body(), webhook_timestamp=at, webhook_signature=f"v1,{junk}{digest[:4]}{junk}{digest[4:]}"
    )


@attack(24)
@pytest.mark.parametrize("late_s", [301, 900, -301, -900])
async def test_a_time_of_another_day(target: IngressDoor, late_s: int) -> bool:
    return await target.takes_standard(target.body(), late_s=late_s)


@attack(25)
@pytest.mark.parametrize("form", ["nan", "{}.0", "{}e0", "+{}", "0{}", "{:_}"])
async def test_a_time_in_another_form(target: IngressDoor, form: str) -> bool:
    at = form.format(int(time.time()))
    digest = standard(target, target.body(), at)
    return await target.takes_standard(target.body(), webhook_timestamp=at, webhook_signature=f"v1,{digest}")


@attack(26)
async def test_a_standard_webhook_once_more(target: IngressDoor) -> bool:
    first = await target.takes_standard(target.body())
    return first and await target.takes_standard(target.body(), late_s=1)


@attack(27)
async def test_a_captured_body_under_another_name(target: IngressDoor) -> bool:
    first = await target.takes_github(target.body())
    return first and await target.takes_github(target.body(), X_GitHub_Delivery=f"{target.named}-again")


@attack(26)
async def test_a_webhook_of_ductile_once_more(target: IngressDoor) -> bool:
    first = await target.takes_ductile(target.body())
    return first and await target.takes_ductile(target.body())


@attack(30)
@pytest.mark.parametrize("name", ["with.a.dot", "x" * 10_000], ids=["dot", "10 kB"])
async def test_a_delivery_with_an_odd_name(target: IngressDoor, name: str) -> bool:
    odd = IngressDoor(door=target.door, named=name)
    return await odd.takes_standard(target.body())


@attack(31)
async def test_the_right_signature_after_a_thousand_wrong_ones(target: IngressDoor) -> bool:
    at = str(int(time.time()))
    wrong = " ".join(["v1,d3Jvbmc="] * 1000)
    signatures = f"{wrong} v1,{standard(target, target.body(), at)}"
    return await target.takes_standard(target.body(), webhook_timestamp=at, webhook_signature=signatures)


@attack(32)
@pytest.mark.parametrize("version", ["v0", "v1a", "none", ""])
async def test_a_signature_of_another_version(target: IngressDoor, version: str) -> bool:
    at = str(int(time.time()))
    digest = standard(target, target.body(), at)
    return await target.takes_standard(target.body(), webhook_timestamp=at, webhook_signature=f"{version},{digest}")


@attack(32)
async def test_a_weaker_hash(target: IngressDoor) -> bool:
    weak = hmac.new(KEYS["github"].encode(), target.body(), hashlib.sha1).hexdigest()
    return await target.takes_github(target.body(), X_Hub_Signature_256="", X_Hub_Signature=f"sha1={weak}")


@attack(24)
@pytest.mark.parametrize("late_s", [301, -301, 86_400])
async def test_an_event_that_was_relayed_long_ago(target: IngressDoor, late_s: int) -> bool:
    return await target.takes_relayed(START, late_s=late_s)


@attack(29)
async def test_an_event_that_was_signed_for_another_address(target: IngressDoor) -> bool:
    return await target.takes_relayed(START, signed_path="/ingest/other")


@attack(20)
async def test_an_event_of_a_peer_that_nobody_signed(target: IngressDoor) -> bool:
    return await target.takes_relayed(START, X_Ductile_Signature="")


@attack(20)
async def test_an_event_of_a_peer_that_nobody_knows(target: IngressDoor) -> bool:
    return await target.takes_relayed(START, X_Ductile_Peer="ductile-elsewhere")


@attack(20)
async def test_an_event_with_a_key_that_there_is_not(target: IngressDoor) -> bool:
    return await target.takes_relayed(START, X_Ductile_Key_Id="v2")


@attack(98)
@pytest.mark.parametrize("event", ["agentic.cancel", "agentic.signal", "agent.completed", "agentic.tool_request.echo"])
async def test_an_event_that_a_peer_may_not_send(target: IngressDoor, event: str) -> bool:
    return await target.takes_relayed({"type": event, "payload": {"run_id": "run_01JD0000000000000000000000"}})


@attack(105)
async def test_the_token_of_the_api_at_the_other_door(target: IngressDoor) -> bool:
    wearing = HttpDoor(url=target.door.url, protected=target.protected, token=TOKENS["operator"])
    return await IngressDoor(door=wearing).takes_github(target.body(), X_Hub_Signature_256="")
