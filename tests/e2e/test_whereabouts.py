"""Where a message of a run is on the bus, by a real server."""

from datetime import UTC, datetime, timedelta

import pytest

from agent_service.bus.reading import NatsWhereabouts
from agent_service.bus.topology import topology
from agent_service.telling.answers.why import Holder, Whereabouts
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import create_missing
from schemas import keys, subjects

ASKED = subjects.tool_request("echo")


@pytest.fixture
async def bus(link: NatsLink) -> NatsLink:
    await create_missing(link, topology(max_gib=1))
    return link


async def ask(bus: NatsLink, *steps: int) -> None:
    for step in steps:
        await bus.publish(ASKED, b"{}", msg_id=keys.request("run_1", step, 1), headers={})


async def found(bus: NatsLink, step: int, since: datetime) -> Whereabouts | None:
    return await NatsWhereabouts(bus).of(subjects.STREAM_REQUESTS, ASKED, keys.request("run_1", step, 1), since)


def only(place: Whereabouts | None) -> Holder:
    assert place is not None
    (holder,) = place.holders
    return holder


async def test_a_request_is_followed_from_the_stream_into_a_hand_and_out_of_it(bus: NatsLink) -> None:
    since = datetime.now(UTC)
    await ask(bus, 1, 2, 3)
    ahead = await found(bus, 2, since)
    assert ahead is not None
    assert (ahead.stream, ahead.seq) == (subjects.STREAM_REQUESTS, 2)
    assert abs(ahead.at - since) < timedelta(seconds=30)
    assert (only(ahead).consumer, only(ahead).stands, only(ahead).before) == ("tools", "ahead", 1)
    pulled = await bus.jetstream.pull_subscribe_bind(subjects.DURABLE_TOOLS, subjects.STREAM_REQUESTS)
    first, second = await pulled.fetch(2)
    in_hand = only(await found(bus, 2, since))
    assert (in_hand.stands, in_hand.in_hand, in_hand.redelivered) == ("in_hand", 2, 0)
    await second.ack_sync()
    await first.ack_sync()
    assert only(await found(bus, 2, since)).stands == "done"
    assert only(await found(bus, 3, since)).stands == "ahead"


async def test_a_message_that_took_the_id_of_ours_is_not_taken_for_it(bus: NatsLink) -> None:
    since = datetime.now(UTC)
    await bus.publish(ASKED, b"somebody else's", msg_id=keys.request("run_1", 1, 1), headers={})
    await ask(bus, 1)
    place = await found(bus, 1, since)
    assert place is not None
    assert place.seq == 2


async def test_what_is_not_there_or_was_sent_long_before_is_not_found(bus: NatsLink) -> None:
    await ask(bus, 1)
    now = datetime.now(UTC)
    assert await found(bus, 2, now) is None
    assert await found(bus, 1, now + timedelta(hours=1)) is None
