"""What is said again after the agent's key was changed is what the bus has already: nobody is asked or told twice."""

import json
from pathlib import Path

import pytest

from agent_service.bus.messages import NatsBus
from agent_service.bus.topology import topology
from agent_service.trust.signing import Signing
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import create_missing
from groundwork.service.keys import KeyRing
from schemas import subjects
from schemas.envelope import SIGNATURE, with_capability

REQUEST = subjects.tool_request("look")
BODY = json.dumps({"type": REQUEST, "payload": {"run_id": "r"}}, separators=(",", ":")).encode()
KEY = "agentic:run:r:said"


async def held(link: NatsLink, stream: str) -> int:
    return (await link.jetstream.stream_info(stream)).state.messages


@pytest.fixture
async def bus(link: NatsLink) -> NatsLink:
    await create_missing(link, topology(max_gib=1))
    return link


async def test_a_request_with_a_newer_capability_is_the_same_request(bus: NatsLink) -> None:
    for capability in ("k1.old", "k2.new"):
        await NatsBus(bus).publish(REQUEST, with_capability(BODY, capability), key=KEY, headers={})
    assert await held(bus, subjects.STREAM_REQUESTS) == 1


@pytest.mark.attack(99)
async def test_an_ending_that_somebody_said_before_without_a_signature_is_said_with_one(
    bus: NatsLink, tmp_path: Path
) -> None:
    await bus.publish(subjects.COMPLETED, BODY, msg_id=KEY, headers={SIGNATURE: f"k1.{'A' * 86}"})
    signing = Signing(KeyRing.fresh(), tmp_path)
    headers = {SIGNATURE: signing.sign(subjects.COMPLETED, BODY)}
    await NatsBus(bus, signing).publish(subjects.COMPLETED, BODY, key=KEY, headers=headers)
    stored = await bus.stored(subjects.STREAM, 2)
    assert stored is not None
    assert signing.made(stored.subject, stored.body, stored.headers.get(SIGNATURE))
