"""While a cluster elects a leader nothing is wrong with it: what is asked of it then is asked again."""

import base64
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from groundwork.nats.leases.lease import Role, look
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.settings import NatsSettings
from groundwork.nats.shared_log import SharedLog
from groundwork.nats.topology import (
    StreamSpec,
    Topology,
    create_missing,
)
from groundwork.service.errors import TryAgain
from tests.kit.bus import server_with

ELECTING = {"error": {"code": 503, "err_code": 10008, "description": "JetStream system temporarily unavailable"}}
"""As a server says it whose cluster has no leader."""
MISSING = {"error": {"code": 404, "err_code": 10059, "description": "stream not found"}}
AWAY = {"error": {"code": 400, "err_code": 10005, "description": "no suitable peers for placement"}}
"""As a cluster says it of whose servers one was not heard of for a moment."""
EMPTY = {"messages": 0, "bytes": 0, "first_seq": 0, "last_seq": 0, "consumer_count": 0}


@pytest.fixture
async def electing(tmp_path: Path, unused_port: int) -> AsyncIterator[NatsLink]:
    async with server_with(tmp_path, unused_port, {}) as address:
        link = await connect(NatsSettings(urls=(f"nats://{address}",)))

        async def answer(message: Msg) -> None:
            await message.respond(json.dumps(ELECTING).encode())

        await link.subscribe("$JS.API.>", answer)
        yield link
        await link.close()


async def test_a_lease_is_not_taken_for_unreadable(electing: NatsLink) -> None:
    with pytest.raises(TryAgain):
        await look(electing, Role(bucket="leases", key="agent", command="agentic serve"))


async def test_what_is_missing_is_made_once_there_are_a_leader_and_enough_servers(
    tmp_path: Path, unused_port: int
) -> None:
    asked, wanted = list[str](), list[str]()

    async def answer(message: Msg) -> None:
        asked.append(message.subject)
        await message.respond(json.dumps(MISSING if len(asked) > 2 else ELECTING).encode())

    async def make(message: Msg) -> None:
        wanted.append(message.subject)
        made = {"config": json.loads(message.data), "state": EMPTY}
        await message.respond(json.dumps(made if len(wanted) > 1 else AWAY).encode())

    async with server_with(tmp_path, unused_port, {}) as address:
        link = await connect(NatsSettings(urls=(f"nats://{address}",)))
        await link.subscribe("$JS.API.STREAM.INFO.*", answer)
        await link.subscribe("$JS.API.STREAM.CREATE.*", make)
        made = await create_missing(link, Topology(streams=(StreamSpec("ORDERS", {"subjects": ["orders.>"]}),)))
        await link.close()
    assert (len(asked), len(wanted), [deviation.kind for deviation in made]) == (4, 2, ["created"])


class Leaders:
    """Of a stream of facts: the first that is asked dies of it and says nothing, the next one answers."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.stored: Msg | None = None

    async def take(self, message: Msg) -> None:
        """The first has stored it."""
        self.asked.append(time.monotonic())
        if self.stored:
            await message.respond(json.dumps({"error": {"code": 400, "err_code": 10071}}).encode())
        self.stored = message

    async def tell(self, message: Msg) -> None:
        self.asked.append(time.monotonic())
        if self.stored is None or len(self.asked) == 1:
            return
        lines = "".join(f"{name}: {value}\r\n" for name, value in (self.stored.headers or {}).items())
        head = base64.b64encode(f"NATS/1.0\r\n{lines}\r\n".encode()).decode()
        told = {"subject": self.stored.subject, "seq": 7, "hdrs": head, "time": "2026-01-01T00:00:00Z"}
        await message.respond(json.dumps({"message": told}).encode())


async def test_a_fact_that_a_dying_leader_stored_without_an_answer_is_known_again_by_the_next_one(
    tmp_path: Path, unused_port: int
) -> None:
    leaders = Leaders()
    async with server_with(tmp_path, unused_port, {}) as address:
        link = await connect(NatsSettings(urls=(f"nats://{address}",)))
        await link.subscribe("facts.>", leaders.take)
        await link.subscribe("$JS.API.STREAM.MSG.GET.FACTS", leaders.tell)
        seq = await SharedLog(link, "FACTS", root="facts").append("facts.a", b"1", after=0)
        await link.close()
    first, second, _ = leaders.asked
    assert (seq, second - first < 1.7) == (7, True)
