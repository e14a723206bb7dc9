"""`agentic setup`: what is missing is made, and what earlier versions kept in other streams is moved.

They kept starts, results and tool requests in `AGENTIC`, which took nothing more when it was full. What nobody has
taken there yet is published once more under its id, and lands in the stream of its own; requests are said again by the
agent that asks. A setup that was ended half way is finished by the next.
"""

from collections.abc import AsyncIterator

from nats.aio.msg import Msg
from nats.js.api import ConsumerInfo

from groundwork.nats.completing import complete
from groundwork.nats.delivery import Delivery, read_delivery
from groundwork.nats.link import NatsLink
from groundwork.nats.settling import own_headers
from groundwork.nats.taking_back import TakingBack
from groundwork.nats.topology import (
    Deviation,
    Topology,
    change_settings,
    create_missing,
    delete_consumer,
    found_consumer,
    found_stream,
)
from schemas import subjects

MOVED = frozenset({subjects.START, subjects.TOOL_RESULT, subjects.ALL_TOOL_REQUESTS})
AT_ONCE = 64
WITHIN_S = 5.0


async def set_up(link: NatsLink, wanted: Topology) -> list[Deviation]:
    """Create what is missing, move what earlier versions kept elsewhere, and add what they did not set. The findings
    tell all that was done, and what differs, which is left as it is. Raises as `create_missing`."""
    moved = await _make_room(link, wanted)
    done = [*moved, *await complete(link, wanted), *await create_missing(link, wanted)]
    await _carry_over(link)
    return done


async def _make_room(link: NatsLink, wanted: Topology) -> list[Deviation]:
    """Two streams cannot take the same subject, and the room of the new ones was set aside for the old."""
    specs = {stream.name: stream for stream in wanted.streams}
    work, letters = specs[subjects.STREAM], specs[subjects.STREAM_DEAD_LETTERS]
    found = await found_stream(link, work)
    if found is None or not MOVED & set(found.config.subjects or ()):
        return []
    await delete_consumer(link, subjects.STREAM, subjects.DURABLE_TOOLS)
    fields = ["subjects", "discard", "description"]
    if found.config.max_bytes == _of_old(wanted):
        fields.append("max_bytes")
    return [*await change_settings(link, work, fields), *await change_settings(link, letters, ["subjects"])]


def _of_old(wanted: Topology) -> int:
    """The most bytes of the one stream that earlier versions made."""
    work = (subjects.STREAM, subjects.STREAM_STARTS, subjects.STREAM_RESULTS)
    return sum(stream.settings["max_bytes"] for stream in wanted.streams if stream.name in work)


async def _carry_over(link: NatsLink) -> None:
    """What the agent's old consumer has not handed out, or whose agent has not answered."""
    old = await found_consumer(link, subjects.STREAM, subjects.DURABLE_LOOP)
    if old is None:
        return
    await TakingBack(link, subjects.STREAM, subjects.DURABLE_LOOP).take_back(())
    async for message in _left(link, old):
        await _publish_again(link, read_delivery(message))
        await message.ack_sync()
    await delete_consumer(link, subjects.STREAM, subjects.DURABLE_LOOP)


async def _left(link: NatsLink, consumer: ConsumerInfo) -> AsyncIterator[Msg]:
    pulled = await link.jetstream.pull_subscribe_bind(consumer.name, consumer.stream_name)
    left = (consumer.num_pending or 0) + (consumer.num_ack_pending or 0)
    try:
        while left > 0:
            for message in await pulled.fetch(min(AT_ONCE, left), timeout=WITHIN_S):
                left -= 1
                yield message
    finally:
        await pulled.unsubscribe()


async def _publish_again(link: NatsLink, delivery: Delivery) -> None:
    msg_id = delivery.headers.get("Nats-Msg-Id") or f"moved:{subjects.STREAM}:{delivery.stream_seq}"
    await link.publish(delivery.subject, delivery.body, msg_id=msg_id, headers=own_headers(delivery.headers))
