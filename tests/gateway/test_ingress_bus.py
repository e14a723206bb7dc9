"""The ingress on a real bus with a real record: each event once, whatever breaks in between."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ductile_gateway.bus.outgoing import NatsBus
from ductile_gateway.store.outbox import SqliteDeliveries
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from schemas import subjects
from schemas.events import ToolResult
from tests.gateway.ingress_house import House, an_event
from tests.gateway.on_nats import a_bus, results
from tests.gateway.parts import NOON, RUN
from tests.gateway.stores import opened
from tests.kit.waiting import until

COPIES = 200


@pytest.fixture
async def deliveries(tmp_path: Path) -> AsyncIterator[SqliteDeliveries]:
    async with opened(tmp_path, SqliteDeliveries) as record:
        yield record


async def stored(link: NatsLink) -> list[ToolResult]:
    return await results(link)


async def test_many_copies_of_a_delivery_at_a_time_are_one_message(
    link: NatsLink, deliveries: SqliteDeliveries
) -> None:
    await a_bus(link)
    house = House(bus=NatsBus(link), deliveries=deliveries)
    answers = await asyncio.gather(*(house.relay(an_event()) for _ in range(COPIES)))
    assert {answer.status_code for answer in answers} == {202}
    assert sum(not answer.json()["duplicate"] for answer in answers) == 1
    assert [result.run_id for result in await stored(link)] == [RUN]


async def test_what_the_bus_has_forgotten_the_record_still_knows(link: NatsLink, deliveries: SqliteDeliveries) -> None:
    await a_bus(link)
    house = House(bus=NatsBus(link), deliveries=deliveries)
    await house.relay(an_event())
    await link.jetstream.purge_stream(subjects.STREAM_RESULTS)
    assert (await house.relay(an_event())).json()["duplicate"] is True
    assert (await link.jetstream.stream_info(subjects.STREAM_RESULTS)).state.messages == 0


async def test_a_delivery_while_the_server_is_away_is_taken_when_it_is_back(
    nats_server: EmbeddedNats, link: NatsLink, deliveries: SqliteDeliveries
) -> None:
    await a_bus(link)
    house = House(bus=NatsBus(link), deliveries=deliveries, answer_within_s=0.3)
    nats_server.kill()
    answer = await house.relay(an_event())
    assert answer.status_code == 503
    assert answer.headers["Retry-After"]
    await nats_server.start()
    await until(lambda: link.connected)
    patient = House(bus=NatsBus(link), deliveries=deliveries)
    assert (await patient.relay(an_event())).status_code == 202
    assert len(await stored(link)) == 1


async def test_a_record_survives_its_process(tmp_path: Path) -> None:
    async with opened(tmp_path, SqliteDeliveries) as record:
        await record.record("github", "d-1", event_key="agentic:start:github:d-1", at=NOON)
        await record.record("github", "d-1", event_key="another", at=NOON)
    async with opened(tmp_path, SqliteDeliveries) as record:
        assert await record.find("github", "d-1") == "agentic:start:github:d-1"
        assert await record.find("github", "d-2") is None
        assert await record.find("gitlab", "d-1") is None
